//! What goes wrong with the local store's files and processes: a clear error, nothing broken, and it works again
//! once the cause is gone. Linux only; some trials need root for a disk of their own, and `cc` for a shim.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod local_child;

use std::{
    fs::{self, File, Permissions},
    os::unix::fs::{FileExt, FileTypeExt, PermissionsExt},
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use cerrojo::{
    Error, ErrorKind, FencedGuard, Instant, LeaseState, Locker, Ttl, backend::local::Local, clock,
};
use cerrojo_testbed::{ClockSkew, Disk, Process};
use libtest_mimic::Failed;
use local_child::{LONG, after_shell, child, open_talker, runtime, snapshot, talker, token_in};
use rustix::fs::FlockOperation;
use tempfile::TempDir;

type Outcome = Result<(), Failed>;

fn main() -> ExitCode {
    local_child::main_with_disk(
        &[
            ("garbage_for_a_header_is_told_and_left_alone", garbage_header),
            ("a_database_of_something_else_is_told_and_left_alone", foreign_database),
            ("damaged_pages_are_told_and_grant_nothing", damaged_pages),
            ("a_truncated_database_is_told_and_left_alone", truncated),
            ("a_newer_schema_is_told_and_left_alone", newer_schema),
            ("a_second_time_namespace_is_told_and_left_alone", second_time_namespace),
            ("a_file_in_place_of_the_folder_is_told_and_left_alone", file_for_folder),
            ("a_folder_that_others_can_use_is_told_and_left_alone", folder_of_others),
            ("a_deleted_folder_grants_nothing_any_more", deleted_folder),
            ("a_turn_that_is_never_passed_on_ends_calls_and_leases_but_nothing_else", stuck_turn),
            ("all_files_are_private_whatever_the_umask", private_files),
            ("jumps_of_the_wall_clock_change_nothing", wall_clock_jumps),
            ("a_holder_stopped_past_its_ttl_reads_lost_before_it_acts", stopped_holder),
        ],
        &[
            ("a_full_disk_makes_no_store_until_there_is_room", full_at_creation),
            ("a_full_disk_in_use_is_told_and_all_works_again_with_room", full_in_use),
            ("a_read_only_store_is_told_and_left_alone", read_only_store),
            ("a_read_only_folder_gets_no_store", read_only_folder),
        ],
    )
}

/// A store that was used and closed, with all of it in the database file.
struct Used {
    place: TempDir,
    last_token: u64,
}

impl Used {
    fn new() -> Result<Self, Failed> {
        let place = tempfile::tempdir()?;
        let last_token = use_and_close(&place.path().join("store"))?;
        Ok(Self { place, last_token })
    }

    fn folder(&self) -> PathBuf {
        self.place.path().join("store")
    }

    fn database(&self) -> PathBuf {
        self.folder().join("locks.db")
    }
}

/// In a process of its own, so that nothing of it is open here.
fn use_and_close(folder: &Path) -> Result<u64, Failed> {
    let mut child = open_talker(folder);
    let mut last = 0;
    for name in 0..40 {
        let line = child.ask(&format!("acquire name-{name} 30000 0"), LONG)?;
        last = token_in(&line).ok_or(line)?;
    }
    child.hang_up();
    child.wait(LONG)?;
    let database = rusqlite::Connection::open(folder.join("locks.db"))?;
    database.query_row("PRAGMA wal_checkpoint(TRUNCATE)", (), |_| Ok(()))?;
    Ok(last)
}

/// What opening the store says, which must be an error of this kind that names the folder.
fn refused(folder: &Path, kinds: &[ErrorKind], words: &[&str]) -> Result<(), Failed> {
    let said = talker(folder).1;
    check_complaint(&said, folder, kinds, words)
}

fn check_complaint(said: &str, folder: &Path, kinds: &[ErrorKind], words: &[&str]) -> Outcome {
    let kind = kinds.iter().any(|kind| said.starts_with(&format!("error {} ", kind.as_str())));
    let named = said.contains(&folder.display().to_string());
    let told = words.iter().all(|word| said.contains(word));
    if kind && named && told {
        return Ok(());
    }
    Err(format!("expected {kinds:?}, the path and {words:?}, but it said: {said}").into())
}

/// Opening is refused, and every byte is as before.
fn refused_and_left_alone(folder: &Path, kinds: &[ErrorKind], words: &[&str]) -> Outcome {
    let before = snapshot(folder);
    refused(folder, kinds, words)?;
    assert_same(&before, &snapshot(folder));
    Ok(())
}

fn assert_same(before: &[(PathBuf, u32, Vec<u8>)], after: &[(PathBuf, u32, Vec<u8>)]) {
    let changed: Vec<_> =
        before.iter().filter(|file| !after.contains(file)).map(|file| &file.0).collect();
    let new: Vec<_> =
        after.iter().filter(|file| !before.contains(file)).map(|file| &file.0).collect();
    assert!(changed.is_empty() && new.is_empty(), "gone or changed: {changed:?}, new: {new:?}");
}

fn works(folder: &Path, after_token: u64) -> Outcome {
    let mut child = open_talker(folder);
    let line = child.ask("acquire works 30000 0", LONG)?;
    assert!(token_in(&line) > Some(after_token), "{line} after {after_token}");
    assert_eq!(child.ask("release works", LONG)?, "released");
    Ok(())
}

fn garbage_header() -> Outcome {
    let used = Used::new()?;
    File::options().write(true).open(used.database())?.write_all_at(&[0xA5; 100], 0)?;
    refused_and_left_alone(&used.folder(), &[ErrorKind::Corrupt], &["damaged"])
}

fn foreign_database() -> Outcome {
    let place = tempfile::tempdir()?;
    let folder = place.path().join("store");
    fs::create_dir(&folder)?;
    fs::set_permissions(&folder, Permissions::from_mode(0o700))?;
    let database = rusqlite::Connection::open(folder.join("locks.db"))?;
    database.execute_batch("CREATE TABLE diary (entry TEXT); INSERT INTO diary VALUES ('dear')")?;
    drop(database);
    let bytes = fs::read(folder.join("locks.db"))?;
    refused(&folder, &[ErrorKind::Invalid, ErrorKind::Corrupt], &["not a lock store"])?;
    assert!(bytes == fs::read(folder.join("locks.db"))?, "the file was changed");
    Ok(())
}

/// Overwrites each page but the first, one in each round: the store opens and counts on, or says that it is damaged.
fn damaged_pages() -> Outcome {
    let pages = fs::metadata(Used::new()?.database())?.len() / 4096;
    let mut told = 0;
    for page in 1..pages {
        let used = Used::new()?;
        File::options()
            .write(true)
            .open(used.database())?
            .write_all_at(&[0xA5; 4096], page * 4096)?;
        told += usize::from(is_told(&used)?);
    }
    assert!(told > 0, "no damage was told in {pages} pages");
    Ok(())
}

fn is_told(used: &Used) -> Result<bool, Failed> {
    let before = fs::read(used.database())?;
    let (mut child, mut said) = talker(&used.folder());
    assert!(said == "open" || before == fs::read(used.database())?, "refused, but changed");
    for name in ["name-7", "new"] {
        if said == "open" || token_in(&said).is_some() {
            said = child.ask(&format!("acquire {name} 30000 0"), LONG)?;
        }
    }
    match token_in(&said) {
        Some(token) => assert!(token > used.last_token, "{token} after {}", used.last_token),
        None => check_complaint(&said, &used.folder(), &[ErrorKind::Corrupt], &["damaged"])?,
    }
    Ok(token_in(&said).is_none())
}

fn truncated() -> Outcome {
    let used = Used::new()?;
    let database = File::options().write(true).open(used.database())?;
    database.set_len(database.metadata()?.len() / 2)?;
    refused_and_left_alone(&used.folder(), &[ErrorKind::Corrupt], &["damaged"])
}

fn newer_schema() -> Outcome {
    let used = Used::new()?;
    let bump = |by: i64| -> rusqlite::Result<()> {
        let database = rusqlite::Connection::open(used.database())?;
        let version: i64 = database.query_row("PRAGMA user_version", (), |row| row.get(0))?;
        database.execute_batch(&format!("PRAGMA user_version = {}", version + by))?;
        database.query_row("PRAGMA wal_checkpoint(TRUNCATE)", (), |_| Ok(()))
    };
    bump(1)?;
    refused_and_left_alone(&used.folder(), &[ErrorKind::Invalid], &["newer version", "upgrade"])?;
    bump(-1)?;
    works(&used.folder(), used.last_token)
}

fn second_time_namespace() -> Outcome {
    let used = Used::new()?;
    let before = fs::read(used.database())?;
    let opened = runtime().block_on(Local::builder(used.folder()).time_namespace(4242).connect());
    check_error(&opened.unwrap_err(), &used.folder(), &[ErrorKind::Invalid], &["time namespace"])?;
    // SQLite's own side files may be there now, but nothing was written.
    assert!(before == fs::read(used.database())?, "the database was changed");
    let log = used.folder().join("locks.db-wal");
    assert_eq!(fs::metadata(log).map_or(0, |log| log.len()), 0);
    works(&used.folder(), used.last_token)
}

fn check_error(error: &Error, folder: &Path, kinds: &[ErrorKind], words: &[&str]) -> Outcome {
    check_complaint(&format!("error {} {error}", error.kind().as_str()), folder, kinds, words)
}

fn file_for_folder() -> Outcome {
    let place = tempfile::tempdir()?;
    let file = place.path().join("store");
    fs::write(&file, "mine")?;
    refused(&file, &[ErrorKind::Invalid, ErrorKind::Unavailable], &["folder"])?;
    assert_eq!(fs::read_to_string(&file)?, "mine");
    Ok(())
}

fn folder_of_others() -> Outcome {
    let used = Used::new()?;
    for mode in [0o750, 0o701, 0o777] {
        fs::set_permissions(used.folder(), Permissions::from_mode(mode))?;
        refused_and_left_alone(&used.folder(), &[ErrorKind::Invalid], &["chmod 700"])?;
    }
    fs::set_permissions(used.folder(), Permissions::from_mode(0o700))?;
    works(&used.folder(), used.last_token)
}

fn ttl(millis: u64) -> Ttl {
    Ttl::millis(millis).unwrap()
}

/// Ready when the guard reads lost, which must be close to the end of its validity as it stands now.
async fn lost_on_time(guard: &FencedGuard) -> Outcome {
    let due = guard.valid_until().ok_or("lost already")?;
    clock::within(LONG, guard.lost()).await?;
    let late = Instant::now().since(due);
    assert!(late < Duration::from_secs(3), "{late:?} after the end of validity");
    Ok(())
}

fn deleted_folder() -> Outcome {
    let used = Used::new()?;
    let folder = used.folder();
    runtime().block_on(async {
        let locks = Locker::new(Local::connect(&folder).await?);
        let guard = locks.acquire("held").ttl(ttl(1_000)).await?;
        fs::remove_dir_all(&folder)?;
        let refused = locks.try_acquire("new").await.unwrap_err();
        check_error(&refused, &folder, &[ErrorKind::Corrupt, ErrorKind::Unavailable], &[])?;
        let anew = Locker::new(Local::connect(&folder).await?);
        let other = anew.acquire("held").await?;
        assert_ne!(other.store_id(), guard.store_id(), "a new store has an id of its own");
        let refused = locks.try_acquire("new").await.unwrap_err();
        check_error(&refused, &folder, &[ErrorKind::Corrupt], &["replaced or removed"])?;
        // A renewal cannot work any more, so at the latest the end of validity says so.
        clock::within(LONG, guard.lost()).await?;
        Ok(())
    })
}

/// A process that is stopped while it has the turn, as seen by all others.
fn stuck_turn() -> Outcome {
    let used = Used::new()?;
    let turn = File::options().append(true).open(used.folder().join("turn"))?;
    runtime().block_on(async {
        let locks = Locker::new(Local::connect(used.folder()).await?);
        let short = locks.acquire("short").ttl(ttl(1_500)).await?;
        let long = locks.acquire("long").ttl(ttl(60_000)).await?;
        rustix::fs::flock(&turn, FlockOperation::LockExclusive)?;
        let call = async { clock::within(LONG, locks.try_acquire("new").into_future()).await };
        let (lost, refused) = tokio::join!(lost_on_time(&short), call);
        lost?;
        let kinds = [ErrorKind::Unavailable, ErrorKind::Indeterminate];
        check_error(&refused?.unwrap_err(), &used.folder(), &kinds, &["turn"])?;
        assert_eq!(long.state(), LeaseState::Held);
        rustix::fs::flock(&turn, FlockOperation::Unlock)?;
        // The refused one was given back, the lost one has ended.
        for name in ["new", "short"] {
            let guard = locks.acquire(name).wait(LONG).await?;
            assert!(guard.token() > long.token());
            guard.release().await?;
        }
        Ok(long.release().await?)
    })
}

fn private_files() -> Outcome {
    let place = tempfile::tempdir()?;
    let folder = place.path().join("store");
    let mut child = Process::spawn(&mut after_shell("umask 000", &child("talk", &folder, &["-"])))?;
    assert_eq!(child.line(LONG)?, "open");
    assert!(token_in(&child.ask("acquire a 30000 0", LONG)?).is_some());
    let mut seen = 0;
    for (path, mode, _) in snapshot(place.path()) {
        let kind = fs::symlink_metadata(&path)?.file_type();
        let wanted = if kind.is_dir() { 0o700 } else { 0o600 };
        // What a socket allows does not matter in a folder that nobody else may enter.
        assert!(kind.is_socket() || mode & 0o7777 == wanted, "{path:?} has {mode:o}");
        seen += usize::from(kind.is_file());
    }
    assert!(seen >= 3, "only {seen} files: database, its log and the turn were expected");
    Ok(())
}

/// The shim reaches the standard library and SQLite.
fn wall_clock_jumps() -> Outcome {
    let (place, skew) = (tempfile::tempdir()?, ClockSkew::new()?);
    let folder = place.path().join("store");
    let mut holder = Process::spawn(skew.apply(&mut child("talk", &folder, &["-"])))?;
    assert_eq!(holder.line(LONG)?, "open");
    let mut other = open_talker(&folder);
    let held = token_in(&holder.ask("acquire a 3000 0", LONG)?);
    let wall: u64 = holder.ask("wall", LONG)?.parse()?;
    for days in [2_i64, -2, 400] {
        skew.set_nanos(days * 86_400_000_000_000)?;
        assert!(holder.ask("wall", LONG)?.parse::<u64>()?.abs_diff(wall) > 86_400, "no jump");
        let renewals: u64 = holder.ask("renewals a", LONG)?.parse()?;
        while holder.ask("renewals a", LONG)?.parse::<u64>()? <= renewals {
            assert_eq!(holder.ask("state a", LONG)?, "Held");
            let refused = other.ask("acquire a 3000 100", LONG)?;
            assert!(refused.starts_with("error contended"), "{refused}");
        }
    }
    assert_eq!(holder.ask("release a", LONG)?, "released");
    assert!(token_in(&other.ask("acquire a 3000 10000", LONG)?) > held);
    Ok(())
}

fn stopped_holder() -> Outcome {
    let place = tempfile::tempdir()?;
    let folder = place.path().join("store");
    let mut holder = open_talker(&folder);
    let held = token_in(&holder.ask("acquire a 500 0", LONG)?);
    holder.freeze()?;
    let mut next = open_talker(&folder);
    let entered = token_in(&next.ask("acquire a 30000 20000", LONG)?);
    assert!(entered > held, "{entered:?} after {held:?}");
    holder.thaw()?;
    assert_eq!(holder.ask("state a", LONG)?, "Lost");
    let released = holder.ask("release a", LONG)?;
    assert!(released.starts_with("error lost"), "{released}");
    assert_eq!(next.ask("state a", LONG)?, "Held", "nobody else's lease is touched");
    assert_eq!(next.ask("release a", LONG)?, "released");
    Ok(())
}

/// Few bytes, so that filling it is quick; more than a store needs.
const DISK_BYTES: u64 = 2 << 20;

/// With every little room that is not enough, up to that which is.
fn full_at_creation() -> Outcome {
    let mut refusals = 0;
    for room in (0..128).step_by(4) {
        let disk = Disk::new(DISK_BYTES)?;
        let (folder, ballast) = (disk.path().join("store"), disk.path().join("ballast"));
        let full = disk.fill("ballast")?;
        File::options().write(true).open(&ballast)?.set_len(full - room * 1024)?;
        let (child, said) = talker(&folder);
        drop(child);
        if said != "open" {
            check_complaint(&said, &folder, &[ErrorKind::Unavailable], &["full"])?;
            refusals += 1;
        }
        fs::remove_file(ballast)?;
        works(&folder, 0)?;
    }
    assert!((2..32).contains(&refusals), "{refusals} of 32 were refused");
    Ok(())
}

fn full_in_use() -> Outcome {
    let disk = Disk::new(DISK_BYTES)?;
    let folder = disk.path().join("store");
    // In a child: a mapped file on a full disk can end a process.
    let mut user = open_talker(&folder);
    let held = token_in(&user.ask("acquire held 60000 0", LONG)?);
    disk.fill("ballast")?;
    let (mut last, refused) = until_full(&mut user, held)?;
    check_complaint(&refused, &folder, &[ErrorKind::Unavailable], &["full"])?;
    assert_eq!(user.ask("state held", LONG)?, "Held");
    fs::remove_file(disk.path().join("ballast"))?;
    for name in ["again", "and-again"] {
        let token = token_in(&user.ask(&format!("acquire {name} 60000 5000"), LONG)?);
        assert!(token > last, "{token:?} after {last:?}");
        last = token;
    }
    assert_eq!(user.ask("release held", LONG)?, "released");
    local_child::check_integrity(&folder);
    Ok(())
}

/// Acquires name after name until that fails; the last token, and what was said then.
fn until_full(user: &mut Process, mut last: Option<u64>) -> Result<(Option<u64>, String), Failed> {
    for name in 0..20_000 {
        let said = user.ask(&format!("acquire filler-{name} 60000 0"), LONG)?;
        match token_in(&said) {
            None => return Ok((last, said)),
            token => assert!(token > last, "{token:?} after {last:?}"),
        }
        last = token_in(&said);
    }
    Err("the disk never was full".into())
}

const READ_ONLY: &[&str] = &["must be writable"];

fn read_only_store() -> Outcome {
    let disk = Disk::new(DISK_BYTES)?;
    let folder = disk.path().join("store");
    let last = use_and_close(&folder)?;
    disk.set_read_only()?;
    refused_and_left_alone(&folder, &[ErrorKind::Unavailable], READ_ONLY)?;
    disk.set_writable()?;
    works(&folder, last)
}

fn read_only_folder() -> Outcome {
    let disk = Disk::new(DISK_BYTES)?;
    disk.set_read_only()?;
    refused(&disk.path().join("store"), &[ErrorKind::Unavailable], READ_ONLY)?;
    assert!(snapshot(disk.path()).is_empty());
    Ok(())
}
