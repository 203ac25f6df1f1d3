//! A disk of its own can be full and read-only. Ignored where mounting is not allowed.
#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a failed step fails the test, and why it is ignored is told"
)]

use std::{fs, io::ErrorKind, process::ExitCode};

use cerrojo_testbed::Disk;
use libtest_mimic::{Arguments, Failed, Trial};

type Proof = fn() -> Result<(), Failed>;

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let missing = Disk::unavailable();
    if let Some(why) = &missing {
        eprintln!("ignored: {why}");
    }
    let ignored = missing.is_some() && std::env::var_os("CERROJO_TEST_REQUIRE").is_none();
    let trial = |name: &str, proof: Proof| Trial::test(name, proof).with_ignored_flag(ignored);
    let trials = vec![
        trial("a_full_disk_takes_no_more_until_it_has_room", full),
        trial("a_read_only_disk_refuses_writes_until_it_is_writable", read_only),
        trial("nothing_stays_mounted", gone),
    ];
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn full() -> Result<(), Failed> {
    let disk = Disk::new(256 * 1024)?;
    let filled = disk.fill("ballast")?;
    assert!((1..=256 * 1024).contains(&filled), "{filled}");
    let more = disk.path().join("more");
    assert_eq!(fs::write(&more, [1; 4096]).unwrap_err().kind(), ErrorKind::StorageFull);
    disk.resize(512 * 1024)?;
    fs::write(&more, [1; 4096])?;
    Ok(())
}

fn read_only() -> Result<(), Failed> {
    let disk = Disk::new(256 * 1024)?;
    let file = disk.path().join("file");
    fs::write(&file, "kept")?;
    disk.set_read_only()?;
    assert_eq!(fs::write(&file, "lost").unwrap_err().kind(), ErrorKind::ReadOnlyFilesystem);
    disk.set_writable()?;
    assert_eq!(fs::read_to_string(&file)?, "kept");
    fs::write(&file, "new")?;
    Ok(())
}

fn gone() -> Result<(), Failed> {
    let disk = Disk::new(64 * 1024)?;
    let folder = disk.path().to_path_buf();
    drop(disk);
    assert!(!folder.exists());
    let mounts = fs::read_to_string("/proc/self/mounts")?;
    assert!(!mounts.contains(folder.to_str().unwrap_or_default()));
    Ok(())
}
