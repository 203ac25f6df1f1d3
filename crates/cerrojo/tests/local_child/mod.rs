//! What the tests of the local store share: their child programs, which are this very binary started again.
//!
//! A child is `BINARY --child ROLE FOLDER BOOT_ID ...` and talks by lines; `-` is the real boot id.
#![allow(dead_code, reason = "each test target uses a part")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a failed step fails the test"
)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "children talk by lines")]

use std::{
    collections::HashMap,
    ffi::OsString,
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    time::Duration,
};

use cerrojo::{
    Error, FencedGuard, Locker, Result, Ttl,
    backend::local::{Local, LocalLease},
    spi::{Acquired, Backend, Inspect, Lease, Request},
};
use cerrojo_testbed::{Disk, Process};
use libtest_mimic::{Arguments, Failed, Trial};

/// Longer than anything takes on a busy machine; it only bounds a test that fails.
pub(crate) const LONG: Duration = Duration::from_secs(30);

pub(crate) type Proof = fn() -> std::result::Result<(), Failed>;

/// Runs the trials, or the role of a child.
pub(crate) fn main(trials: &[(&str, Proof)]) -> ExitCode {
    main_with_disk(trials, &[])
}

/// As [`main`], with trials that need a disk of their own: ignored, with the reason, where none can be mounted,
/// unless `CERROJO_TEST_REQUIRE` is set.
pub(crate) fn main_with_disk(trials: &[(&str, Proof)], on_disk: &[(&str, Proof)]) -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    if arguments.get(1).map(String::as_str) == Some("--child") {
        return role(&arguments[2..]);
    }
    let ignored = !on_disk.is_empty() && is_disk_missing();
    let trial = |(name, proof): &(&str, Proof)| Trial::test(*name, *proof);
    let on_disk =
        on_disk.iter().map(|each| trial(each).with_kind("disk").with_ignored_flag(ignored));
    let trials = trials.iter().map(trial).chain(on_disk).collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn is_disk_missing() -> bool {
    let missing = Disk::unavailable();
    if let Some(why) = &missing {
        eprintln!("disk trials: {why}");
    }
    missing.is_some() && std::env::var_os("CERROJO_TEST_REQUIRE").is_none()
}

/// How many rounds: the short form, or the long one with `CERROJO_TEST_LONG`.
pub(crate) fn rounds(short: usize, long: usize) -> usize {
    if std::env::var_os("CERROJO_TEST_LONG").is_some() { long } else { short }
}

/// A runtime whose keepers run while the test itself does something else.
pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// A child of this binary, not yet started.
pub(crate) fn child(role: &str, folder: &Path, more: &[&str]) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--child", role]).arg(folder).args(more);
    command
}

/// A started child that has opened the store, or says why it could not.
pub(crate) fn talker(folder: &Path) -> (Process, String) {
    let child = Process::spawn(&mut child("talk", folder, &["-"])).unwrap();
    let first = child.line(LONG).unwrap();
    (child, first)
}

/// A child that has opened the store.
pub(crate) fn open_talker(folder: &Path) -> Process {
    let (child, first) = talker(folder);
    assert_eq!(first, "open");
    child
}

/// The token that the child says it was granted.
pub(crate) fn token_in(line: &str) -> Option<u64> {
    line.strip_prefix("granted ")?.parse().ok()
}

/// A delay under `max`, spread evenly over the rounds and the same in every run.
pub(crate) fn spread(round: usize, max: Duration) -> Duration {
    let step = u32::try_from(round * 617 % 1000).unwrap();
    max * step / 1000
}

/// Every token that was reported is greater than all before.
#[derive(Debug, Default)]
pub(crate) struct Rising(u64);

impl Rising {
    pub(crate) fn take(&mut self, token: u64) {
        assert!(token > self.0, "token {token} after {}", self.0);
        self.0 = token;
    }

    pub(crate) fn take_all(&mut self, said: &[String]) {
        said.iter().filter_map(|line| token_in(line)).for_each(|token| self.take(token));
    }

    pub(crate) fn greatest(&self) -> u64 {
        self.0
    }
}

/// SQLite's own check of the whole file.
pub(crate) fn check_integrity(folder: &Path) {
    let database = rusqlite::Connection::open(folder.join("locks.db")).unwrap();
    let found: String = database.query_row("PRAGMA integrity_check", (), |row| row.get(0)).unwrap();
    assert_eq!(found, "ok");
}

/// Names, modes and bytes of all files below a folder.
pub(crate) fn snapshot(folder: &Path) -> Vec<(PathBuf, u32, Vec<u8>)> {
    use std::os::unix::fs::PermissionsExt;
    let (mut found, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let metadata = fs::symlink_metadata(&path).unwrap();
            let bytes = if metadata.is_file() { fs::read(&path).unwrap() } else { Vec::new() };
            if metadata.is_dir() {
                folders.push(path.clone());
            }
            found.push((path, metadata.permissions().mode(), bytes));
        }
    }
    found.sort();
    found
}

fn role(arguments: &[String]) -> ExitCode {
    let runtime = runtime();
    let folder = PathBuf::from(&arguments[1]);
    let more: Vec<&str> = arguments[2..].iter().map(String::as_str).collect();
    let done = match arguments[0].as_str() {
        "talk" => talk(&runtime, &folder, more[0]),
        "churn" => runtime.block_on(churn(&folder, more[0])),
        "race" => runtime.block_on(race(&folder, more[0].parse().unwrap())),
        other => panic!("no role {other}"),
    };
    if let Err(error) = done {
        say(&complaint(&error));
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

/// One line, in one write: a kill leaves all of it or nothing.
fn say(line: &str) {
    io::stdout().write_all(format!("{line}\n").as_bytes()).unwrap();
}

fn complaint(error: &Error) -> String {
    format!("error {} {}", error.kind().as_str(), error.to_string().replace('\n', " "))
}

async fn open(folder: &Path, boot: &str) -> Result<Local> {
    match boot {
        "-" => Local::connect(folder).await,
        boot => Local::builder(folder).boot_id(boot).connect().await,
    }
}

/// Does what it is told, line by line, until its input ends.
fn talk(runtime: &tokio::runtime::Runtime, folder: &Path, boot: &str) -> Result<()> {
    let mut talker =
        Talker { locks: Locker::new(runtime.block_on(open(folder, boot))?), held: HashMap::new() };
    say("open");
    for line in io::stdin().lines() {
        let line = line.unwrap();
        let parts: Vec<&str> = line.split(' ').collect();
        let answer = runtime.block_on(talker.obey(&parts));
        say(&answer.unwrap_or_else(|error| complaint(&error)));
    }
    Ok(())
}

struct Talker {
    locks: Locker<Local>,
    held: HashMap<String, FencedGuard>,
}

impl Talker {
    async fn obey(&mut self, parts: &[&str]) -> Result<String> {
        match parts {
            ["acquire", name, ttl_ms, wait_ms] => self.acquire(name, ttl_ms, wait_ms).await,
            ["release", name] => {
                self.held.remove(*name).expect("held").release().await.map(|()| "released".into())
            }
            ["state", name] => Ok(format!("{:?}", self.held[*name].state())),
            ["until", name] => {
                Ok(format!("{:?}", self.held[*name].valid_until().map(|at| at.as_nanos())))
            }
            ["renewals", name] => Ok(self.held[*name].renewals().to_string()),
            ["wall"] => Ok(wall_seconds().to_string()),
            _ => panic!("no command {parts:?}"),
        }
    }

    async fn acquire(&mut self, name: &str, ttl_ms: &str, wait_ms: &str) -> Result<String> {
        let wait = Duration::from_millis(wait_ms.parse().unwrap());
        let ttl = Ttl::millis(ttl_ms.parse().unwrap())?;
        let guard = self.locks.acquire(name).ttl(ttl).wait(wait).await?;
        let answer = format!("granted {}", guard.token().get());
        self.held.insert(name.into(), guard);
        Ok(answer)
    }
}

#[allow(clippy::disallowed_methods, reason = "the wall clock is what is looked at here")]
fn wall_seconds() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs()
}

/// Acquires, renews and releases without end, and says each step before and each token after it is taken.
///
/// It holds `kept` all the while. It asks the backend itself, so that it says when a renewal starts.
async fn churn(folder: &Path, boot: &str) -> Result<()> {
    let store = open(folder, boot).await?;
    say(&format!("held {}", store.list(None, 100).await?.len()));
    let kept = grant(&store, "kept").await?;
    for cycle in 0.. {
        let mut lease = grant(&store, ["a", "b", "c"][cycle % 3]).await?;
        for _ in 0..2 {
            say("renew");
            lease.renew().await?;
        }
        say("release");
        lease.release().await?;
        if cycle % 32 == 31 {
            say("prune");
            store.prune().await?;
        }
    }
    drop(kept);
    Ok(())
}

async fn grant(store: &Local, name: &str) -> Result<LocalLease> {
    let request = Request::new(name.parse()?, Ttl::default()).with_wait(LONG / 2);
    say("acquire");
    match store.acquire(&request).await? {
        Acquired::Granted(lease) => {
            say(&format!("granted {}", lease.grant().number));
            Ok(lease)
        }
        Acquired::Refused(holder) => panic!("{name} is held: {holder:?}"),
    }
}

/// Tries that many times, every eighth time waiting, and enters a room that only one may be in.
async fn race(place: &Path, tries: usize) -> Result<()> {
    let locks = Locker::new(Local::connect(place.join("store")).await?);
    say("open");
    // Everybody starts at once.
    io::stdin().lines().next();
    let mut entered = 0_usize;
    for turn in 0..tries {
        let wait = if turn % 8 == 0 { LONG * 4 } else { Duration::ZERO };
        match locks.acquire("room").wait(wait).await {
            Ok(guard) => {
                enter(place, guard.token().get());
                entered += 1;
                guard.release().await?;
            }
            Err(error) if error.kind() == cerrojo::ErrorKind::Contended => {}
            Err(error) => return Err(error),
        }
    }
    say(&format!("entered {entered}"));
    Ok(())
}

/// Two at once cannot both make the file; the list of tokens is in the order of entry.
fn enter(place: &Path, token: u64) {
    let sentinel = place.join("sentinel");
    let made = fs::OpenOptions::new().write(true).create_new(true).open(&sentinel);
    if let Err(error) = made {
        say(&format!("overlap {error}"));
    }
    let mut entries =
        fs::OpenOptions::new().append(true).create(true).open(place.join("entries")).unwrap();
    entries.write_all(format!("{token}\n").as_bytes()).unwrap();
    fs::remove_file(&sentinel).unwrap();
}

/// This command, started by a shell that first does `setup`.
pub(crate) fn after_shell(setup: &str, command: &Command) -> Command {
    let mut shell = Command::new("sh");
    let script: OsString = format!("{setup}; exec \"$0\" \"$@\"").into();
    shell.arg("-c").arg(script).arg(command.get_program()).args(command.get_args());
    shell
}
