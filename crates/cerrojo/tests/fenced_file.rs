//! The fenced file and the fenced log under crashes, freezes, crowds and bad disks: on real processes. Linux only; needs
//! `cc`.
//!
//! A child is this very binary started again, as `--child ROLE PATH ...`, and talks by lines.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a failed step fails the test"
)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "children talk by lines")]
#![cfg(target_os = "linux")]

use std::{
    fs,
    io::{self, ErrorKind, Write},
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    time::Duration,
};

use cerrojo::{
    Instant, StoreId,
    fence::{FileError, PresentedToken, file::FencedFile, log::FencedLog},
};
use cerrojo_testbed::{Disk, PowerLoss, Process};
use libtest_mimic::{Arguments, Failed, Trial};
use tempfile::TempDir;

/// Longer than anything takes on a busy machine; it only bounds a test that fails.
const LONG: Duration = Duration::from_secs(60);

/// What a test waits for a fence that it expects to be held.
const SHORT: Duration = Duration::from_millis(100);

type Proof = fn() -> Result<(), Failed>;

/// Each trial by the name of its function.
macro_rules! trials {
    ($($proof:ident),* $(,)?) => { [$((stringify!($proof), $proof as Proof)),*] };
}

const TRIALS: &[(&str, Proof)] = &trials![
    a_kill_leaves_old_or_new_and_never_a_lower_fence,
    a_power_loss_leaves_old_or_new_and_never_a_lower_fence,
    a_kill_leaves_whole_records_in_the_log,
    a_power_loss_leaves_whole_records_in_the_log,
    a_frozen_client_holds_others_off_until_their_deadline_and_corrupts_nothing,
    a_crowd_loses_no_update_and_gets_no_stale_one_in,
    a_crowd_appends_to_a_log_in_the_order_of_tokens,
    a_read_raises_the_fence_of_a_file,
    a_token_of_another_store_is_refused_until_the_store_is_adopted,
    a_damaged_state_is_refused,
    a_file_without_a_state_has_admitted_nothing,
    a_link_is_refused_and_nothing_is_written_through_it,
    modes_are_kept_and_nothing_is_left_lying_about,
    a_change_that_panics_changes_nothing_and_lets_others_in,
];

const ON_DISK: &[(&str, Proof)] =
    &trials![a_full_disk_changes_nothing, a_read_only_disk_changes_nothing,];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    if arguments.get(1).map(String::as_str) == Some("--child") {
        role(&arguments[2..]);
        return ExitCode::SUCCESS;
    }
    let missing = Disk::unavailable();
    let ignored = missing.is_some() && std::env::var_os("CERROJO_TEST_REQUIRE").is_none();
    if let Some(why) = missing {
        eprintln!("disk trials: {why}");
    }
    let trial = |(name, proof): &(&str, Proof)| Trial::test(*name, *proof);
    let on_disk =
        ON_DISK.iter().map(|each| trial(each).with_kind("disk").with_ignored_flag(ignored));
    let trials = TRIALS.iter().map(trial).chain(on_disk).collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

// What parents and children share.

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

fn store() -> StoreId {
    StoreId::from_bytes([0xA; 16])
}

fn token(number: u64) -> PresentedToken {
    number.try_into().unwrap()
}

/// What the file holds after an update by this token: as long as a few pages, and whole or not.
fn page(number: u64) -> Vec<u8> {
    let length = usize::try_from(number * 7919 % 20_000).unwrap();
    format!("{number}:{}:{number}", "x".repeat(length)).into_bytes()
}

/// The token that wrote the file; fails unless the file is whole.
fn writer_of(contents: &[u8]) -> u64 {
    let text = str::from_utf8(contents).unwrap();
    let number = text.split(':').next().unwrap().parse().unwrap();
    assert!(contents == page(number), "torn: {} bytes begin as those of {number}", contents.len());
    number
}

fn say(line: &str) {
    println!("{line}");
    io::stdout().flush().unwrap();
}

// The children.

fn role(words: &[String]) {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    block_on(async {
        match words.as_slice() {
            ["write", path] => write(&FencedFile::at(path)).await,
            ["append", path] => append(&FencedLog::at(path)).await,
            ["enter", path, number] => enter(&FencedFile::at(path), number.parse().unwrap()).await,
            ["crowd", path, turns] => updates(path, turns.parse().unwrap()).await,
            ["log-crowd", path, turns] => appends(path, turns.parse().unwrap()).await,
            _ => panic!("no role {words:?}"),
        }
    });
}

/// Updates under one token after the other without end, and says each that has been done.
async fn write(file: &FencedFile) {
    let first = file.state().await.unwrap().highest() + 1;
    say(&format!("from {first}"));
    for number in first.. {
        // The first access under a grant reads or writes.
        if number.is_multiple_of(2) {
            let old = file.read(token(number), store()).await.unwrap();
            assert!(old.is_none_or(|old| writer_of(&old) < number));
        }
        file.update(token(number), store(), move |_| page(number)).await.unwrap();
        say(&format!("done {number}"));
    }
}

async fn append(log: &FencedLog) {
    let first = log.state().await.unwrap().highest() + 1;
    say(&format!("from {first}"));
    for number in first.. {
        log.append(token(number), store(), page(number)).await.unwrap();
        say(&format!("done {number}"));
    }
}

/// Stays within an update until somebody says a word.
async fn enter(file: &FencedFile, number: u64) {
    let change = move |_: Option<&[u8]>| {
        say("inside");
        io::stdin().lines().next();
        page(number)
    };
    match file.update(token(number), store(), change).await {
        Ok(()) => say("done"),
        Err(error) => say(&error.to_string()),
    }
}

/// Adds one line for each update that is admitted, and comes with an older token after each.
async fn updates(path: &str, turns: usize) {
    let file = FencedFile::at(path).wait(LONG);
    wait_for_start();
    for turn in 0..turns {
        let number = loop {
            let number = next_token(turn, file.state().await.unwrap().highest());
            match file.update(token(number), store(), move |old| add_line(old, number)).await {
                Ok(()) => break number,
                Err(FileError::Stale(_)) => {}
                Err(error) => panic!("{error}"),
            }
        };
        if number > 1 {
            let late = file.update(token(number - 1), store(), |_| "stale".to_owned()).await;
            assert!(matches!(late, Err(FileError::Stale(_))), "{late:?}");
        }
    }
    say("done");
}

async fn appends(path: &str, turns: usize) {
    let log = FencedLog::at(path).wait(LONG);
    wait_for_start();
    for turn in 0..turns {
        loop {
            let number = next_token(turn, log.state().await.unwrap().highest());
            match log.append(token(number), store(), *b"line").await {
                Ok(()) => break,
                Err(FileError::Stale(_)) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }
    say("done");
}

fn wait_for_start() {
    say("ready");
    io::stdin().lines().next();
}

/// As if every fourth update were the first under a new grant.
fn next_token(turn: usize, highest: u64) -> u64 {
    (highest + u64::from(turn.is_multiple_of(4))).max(1)
}

fn add_line(old: Option<&[u8]>, number: u64) -> Vec<u8> {
    [old.unwrap_or_default(), format!("{number}\n").as_bytes()].concat()
}

// What a parent needs.

fn child(role: &str, path: &Path, more: &[&str]) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--child", role]).arg(path).args(more);
    command
}

/// A path in a folder of its own.
fn place() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data");
    (folder, path)
}

/// How many rounds: the short form, or the long one with `CERROJO_TEST_LONG`.
fn rounds(short: usize, long: usize) -> usize {
    if std::env::var_os("CERROJO_TEST_LONG").is_some() { long } else { short }
}

/// A delay under `max`, spread evenly over the rounds and the same in every run.
fn spread(round: usize, max: Duration) -> Duration {
    max * u32::try_from(round * 617 % 1000).unwrap() / 1000
}

/// Lets a child work, kills it, and answers the last token that it said to have finished.
fn work_and_die(command: &mut Command, round: usize, last: u64) -> Result<u64, Failed> {
    let mut worker = Process::spawn(command)?;
    let first: u64 = worker.line(LONG)?.strip_prefix("from ").unwrap().parse()?;
    assert!(first > last, "the fence was lowered: {first} comes after {last}");
    assert_eq!(worker.line(LONG)?, format!("done {first}"));
    worker.kill_after(spread(round, Duration::from_millis(25)))?;
    let said = worker.rest(LONG)?;
    let mut done = said.iter().filter_map(|line| line.strip_prefix("done ")?.parse().ok());
    Ok(done.next_back().unwrap_or(first))
}

fn listed(path: &Path) -> Vec<String> {
    let names = fs::read_dir(path.parent().unwrap()).unwrap();
    let mut names: Vec<_> =
        names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

// Crashes.

fn a_kill_leaves_old_or_new_and_never_a_lower_fence() -> Result<(), Failed> {
    let (_folder, path) = place();
    let mut last = 0;
    for round in 0..rounds(60, 1_000) {
        last = work_and_die(&mut child("write", &path, &[]), round, last)?;
        last = check_file(&path, last);
    }
    Ok(())
}

/// The file is whole, not older than what was done, and its fence not lower; answers how high that is.
fn check_file(path: &Path, last: u64) -> u64 {
    let highest = block_on(FencedFile::at(path).state()).unwrap().highest();
    let writer = writer_of(&fs::read(path).unwrap());
    assert!(writer >= last && highest >= writer, "{writer} wrote, {last} was done, {highest} read");
    highest
}

fn a_power_loss_leaves_old_or_new_and_never_a_lower_fence() -> Result<(), Failed> {
    let (folder, path) = place();
    let power = PowerLoss::new(folder.path())?;
    let mut last = 0;
    for round in 0..rounds(40, 500) {
        let command = &mut child("write", &path, &[]);
        last = work_and_die(power.apply(command), round, last)?;
        power.restore_except(|name| spare(round, name))?;
        last = check_file(&path, last);
    }
    Ok(())
}

/// A power loss may spare a change that nobody has synced; never the file without the fence, which was synced before.
fn spare(round: usize, name: &Path) -> bool {
    match round % 3 {
        1 => name.ends_with("data.fence"),
        2 => name.ends_with("data") || name.ends_with("data.fence"),
        _ => false,
    }
}

fn a_kill_leaves_whole_records_in_the_log() -> Result<(), Failed> {
    let (_folder, path) = place();
    let mut last = 0;
    for round in 0..rounds(40, 400) {
        last = work_and_die(&mut child("append", &path, &[]), round, last)?;
        last = check_log(&path, last);
    }
    Ok(())
}

/// All that was appended is there and in order; answers how high the fence is.
fn check_log(path: &Path, last: u64) -> u64 {
    let log = FencedLog::at(path);
    let records: Vec<_> = block_on(log.records()).unwrap().map(|record| record.unwrap()).collect();
    let tokens: Vec<_> = records.iter().map(|record| record.token.get()).collect();
    assert!(tokens.is_sorted() && tokens.last() >= Some(&last), "{last}: {tokens:?}");
    for record in &records {
        assert_eq!(writer_of(&record.bytes), record.token.get());
    }
    let highest = block_on(log.state()).unwrap().highest();
    assert!(highest >= last);
    highest
}

fn a_power_loss_leaves_whole_records_in_the_log() -> Result<(), Failed> {
    let (folder, path) = place();
    let power = PowerLoss::new(folder.path())?;
    let mut last = 0;
    for round in 0..rounds(25, 150) {
        let command = &mut child("append", &path, &[]);
        last = work_and_die(power.apply(command), round, last)?;
        power.restore_except(|name| spare(round, name))?;
        last = check_log(&path, last);
    }
    Ok(())
}

// Freezes and crowds.

fn a_frozen_client_holds_others_off_until_their_deadline_and_corrupts_nothing() -> Result<(), Failed>
{
    let (_folder, path) = place();
    let file = FencedFile::at(&path);
    block_on(file.update(token(1), store(), |_| page(1)))?;
    let mut inside = Process::spawn(&mut child("enter", &path, &["2"]))?;
    assert_eq!(inside.line(LONG)?, "inside");
    inside.freeze()?;
    for number in [1, 2, 3] {
        let start = Instant::now();
        let busy = block_on(file.clone().wait(SHORT).update(token(number), store(), |_| page(9)));
        assert!(matches!(&busy, Err(FileError::Busy { waited: SHORT, .. })), "{busy:?}");
        assert!(Instant::now().since(start) >= SHORT, "not before the deadline");
    }
    assert_eq!(writer_of(&fs::read(&path)?), 1);
    inside.kill()?;
    block_on(file.wait(LONG).update(token(3), store(), |_| page(3)))?;
    assert_eq!(writer_of(&fs::read(&path)?), 3);
    thawed(&path)
}

/// One that wakes up again was never overtaken: nobody could pass.
fn thawed(path: &Path) -> Result<(), Failed> {
    let mut inside = Process::spawn(&mut child("enter", path, &["4"]))?;
    assert_eq!(inside.line(LONG)?, "inside");
    inside.freeze()?;
    inside.thaw()?;
    assert_eq!(inside.ask("go on", LONG)?, "done");
    assert_eq!(writer_of(&fs::read(path)?), 4);
    Ok(())
}

/// Sixteen children that start at once and each do as many turns.
fn run_crowd(role: &str, path: &Path, turns: usize) -> Result<usize, Failed> {
    const CHILDREN: usize = 16;
    let spawn = |_| Process::spawn(&mut child(role, path, &[&turns.to_string()]));
    let mut children = (0..CHILDREN).map(spawn).collect::<Result<Vec<_>, _>>()?;
    for child in &mut children {
        assert_eq!(child.line(LONG)?, "ready");
    }
    for child in &mut children {
        child.say("go")?;
    }
    for child in &children {
        assert_eq!(child.line(LONG * 10)?, "done");
    }
    Ok(CHILDREN * turns)
}

fn a_crowd_loses_no_update_and_gets_no_stale_one_in() -> Result<(), Failed> {
    let (_folder, path) = place();
    let done = run_crowd("crowd", &path, 200)?;
    let text = fs::read_to_string(&path)?;
    let tokens: Vec<u64> = text.lines().map(|line| line.parse().unwrap()).collect();
    assert!(tokens.is_sorted(), "a stale update got in");
    assert_eq!(tokens.len(), done, "an update was lost");
    assert_eq!(block_on(FencedFile::at(&path).state())?.highest(), tokens[done - 1]);
    Ok(())
}

fn a_crowd_appends_to_a_log_in_the_order_of_tokens() -> Result<(), Failed> {
    let (_folder, path) = place();
    let done = run_crowd("log-crowd", &path, rounds(50, 500))?;
    let records = block_on(FencedLog::at(&path).records())?;
    let tokens: Vec<_> = records.map(|record| record.unwrap().token).collect();
    assert!(tokens.is_sorted() && tokens.len() == done, "{} of {done}", tokens.len());
    Ok(())
}

// Rules.

fn a_read_raises_the_fence_of_a_file() -> Result<(), Failed> {
    let (_folder, path) = place();
    let file = FencedFile::at(&path);
    assert_eq!(block_on(file.read(token(33), store()))?, None);
    assert_eq!(block_on(file.read(token(34), store()))?, None);
    let late = block_on(file.update(token(33), store(), |_| page(33)));
    assert!(matches!(late, Err(FileError::Stale(stale)) if stale.highest == 34));
    assert!(!path.exists());
    block_on(file.update(token(34), store(), |_| page(34)))?;
    Ok(())
}

fn a_token_of_another_store_is_refused_until_the_store_is_adopted() -> Result<(), Failed> {
    let (_folder, path) = place();
    let (file, new) = (FencedFile::at(&path), StoreId::from_bytes([0xB; 16]));
    block_on(file.update(token(9), store(), |_| page(9)))?;
    for number in [1, 9, 99] {
        let refused = block_on(file.update(token(number), new, |_| page(1)));
        assert!(matches!(&refused, Err(FileError::OtherStore { .. })), "{refused:?}");
        let message = refused.unwrap_err().to_string();
        assert!(message.contains(&new.to_string()) && message.contains(&store().to_string()));
    }
    assert_eq!(writer_of(&fs::read(&path)?), 9);
    block_on(file.adopt(new))?;
    block_on(file.update(token(1), new, |_| page(1)))?;
    let old = block_on(file.update(token(10), store(), |_| page(10)));
    assert!(matches!(old, Err(FileError::OtherStore { .. })), "{old:?}");
    Ok(())
}

fn a_damaged_state_is_refused() -> Result<(), Failed> {
    let (folder, path) = place();
    let (file, state) = (FencedFile::at(&path), folder.path().join("data.fence"));
    block_on(file.update(token(9), store(), |_| page(9)))?;
    let good = fs::read_to_string(&state)?;
    for bad in [good.replace("highest 9", "highest 8"), good[..30].to_owned(), good.repeat(2)] {
        fs::write(&state, &bad)?;
        let refused = block_on(file.update(token(99), store(), |_| page(99)));
        assert!(matches!(&refused, Err(FileError::Damaged { .. })), "{bad}: {refused:?}");
        assert!(matches!(block_on(file.state()), Err(FileError::Damaged { .. })));
        assert_eq!(fs::read_to_string(&state)?, bad);
    }
    for other in ["", "hello"] {
        fs::write(&state, other)?;
        let refused = block_on(file.read(token(99), store()));
        assert!(matches!(&refused, Err(FileError::NotAState { .. })), "{other}: {refused:?}");
    }
    assert_eq!(writer_of(&fs::read(&path)?), 9);
    fs::write(&state, good)?;
    block_on(file.update(token(9), store(), |_| page(9)))?;
    Ok(())
}

fn a_file_without_a_state_has_admitted_nothing() -> Result<(), Failed> {
    let (_folder, path) = place();
    fs::write(&path, page(1))?;
    let file = FencedFile::at(&path);
    assert_eq!(block_on(file.state())?, cerrojo::fence::state::State::default());
    assert_eq!(listed(&path), ["data"], "a look leaves nothing");
    assert_eq!(block_on(file.read(token(3), store()))?, Some(page(1)));
    assert_eq!(block_on(file.state())?.store(), Some(store()));
    Ok(())
}

fn a_link_is_refused_and_nothing_is_written_through_it() -> Result<(), Failed> {
    for name in ["data", "data.fence", "data.fence.lock"] {
        refused_behind_a_link(name, None)?;
        refused_behind_a_link(name, Some(b"precious"))?;
    }
    let (folder, _) = place();
    let refused = block_on(FencedFile::at(folder.path()).read(token(9), store()));
    assert!(matches!(refused, Err(FileError::NotAFile { .. })), "{refused:?}");
    Ok(())
}

/// Whether the link leads to a file or to nothing.
fn refused_behind_a_link(name: &str, behind: Option<&[u8]>) -> Result<(), Failed> {
    let (folder, path) = place();
    let (link, target) = (folder.path().join(name), folder.path().join("target"));
    if let Some(bytes) = behind {
        fs::write(&target, bytes)?;
    }
    symlink(&target, &link)?;
    let refused = block_on(FencedFile::at(&path).update(token(9), store(), |_| page(9)));
    assert!(matches!(refused, Err(FileError::NotAFile { .. })), "{name}: {refused:?}");
    assert!(link.is_symlink(), "{name}");
    assert_eq!(fs::read(&target).ok().as_deref(), behind, "{name}");
    Ok(())
}

fn modes_are_kept_and_nothing_is_left_lying_about() -> Result<(), Failed> {
    let (_folder, path) = place();
    let file = FencedFile::at(&path);
    for (number, mode) in (1..).zip([0o600, 0o640, 0o664, 0o755, 0o400]) {
        fs::write(&path, "old")?;
        fs::set_permissions(&path, fs::Permissions::from_mode(mode))?;
        block_on(file.update(token(number), store(), move |_| page(number)))?;
        assert_eq!(fs::metadata(&path)?.permissions().mode() & 0o7777, mode);
        fs::remove_file(&path)?;
    }
    block_on(file.update(token(9), store(), |_| page(9)))?;
    assert_eq!(listed(&path), ["data", "data.fence", "data.fence.lock"]);
    Ok(())
}

fn a_change_that_panics_changes_nothing_and_lets_others_in() -> Result<(), Failed> {
    let (_folder, path) = place();
    let file = FencedFile::at(&path);
    block_on(file.update(token(1), store(), |_| page(1)))?;
    let panicking = file.clone();
    let ended = std::thread::spawn(move || {
        let change = |_: Option<&[u8]>| -> Vec<u8> { std::panic::resume_unwind(Box::new(())) };
        block_on(panicking.update(token(1), store(), change))
    })
    .join();
    assert!(ended.is_err());
    assert_eq!(writer_of(&fs::read(&path)?), 1);
    block_on(file.wait(SHORT).update(token(1), store(), |_| page(1)))?;
    Ok(())
}

// Disks.

/// The update fails with an error of this kind, and nothing is other than before.
#[track_caller]
fn assert_refused(path: &Path, kind: ErrorKind) {
    let (before, state) =
        (fs::read(path).unwrap(), block_on(FencedFile::at(path).state()).unwrap());
    let refused = block_on(FencedFile::at(path).update(token(9), store(), |_| vec![b'x'; 100_000]));
    match refused {
        Err(FileError::Io { source, .. }) => assert_eq!(source.kind(), kind),
        other => panic!("{other:?}"),
    }
    assert_eq!(fs::read(path).unwrap(), before);
    let after = block_on(FencedFile::at(path).state()).unwrap();
    assert!(after.highest() >= state.highest(), "{after:?} after {state:?}");
    assert!(!listed(path).iter().any(|name| name.ends_with("draft")), "{:?}", listed(path));
}

fn a_full_disk_changes_nothing() -> Result<(), Failed> {
    let disk = Disk::new(256 * 1024)?;
    let (path, log) = (disk.path().join("data"), FencedLog::at(disk.path().join("log")));
    block_on(FencedFile::at(&path).update(token(1), store(), |_| page(1)))?;
    block_on(log.append(token(1), store(), page(1)))?;
    disk.fill("filler")?;
    assert_refused(&path, ErrorKind::StorageFull);
    assert!(block_on(log.append(token(1), store(), vec![b'x'; 100_000])).is_err());
    assert_eq!(block_on(log.records())?.count(), 1);
    fs::remove_file(disk.path().join("filler"))?;
    block_on(log.append(token(1), store(), page(2)))?;
    assert_eq!(block_on(log.records())?.count(), 2);
    block_on(FencedFile::at(&path).update(token(9), store(), |_| page(9)))?;
    assert_eq!(writer_of(&fs::read(&path)?), 9);
    Ok(())
}

fn a_read_only_disk_changes_nothing() -> Result<(), Failed> {
    let disk = Disk::new(256 * 1024)?;
    let path = disk.path().join("data");
    block_on(FencedFile::at(&path).update(token(1), store(), |_| page(1)))?;
    disk.set_read_only()?;
    assert_refused(&path, ErrorKind::ReadOnlyFilesystem);
    assert_eq!(block_on(FencedFile::at(&path).read(token(1), store()))?, Some(page(1)));
    disk.set_writable()?;
    block_on(FencedFile::at(&path).update(token(9), store(), |_| page(9)))?;
    Ok(())
}
