//! `acquire --pid`: a lock that is kept for as long as a process runs.

use std::{
    fs,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::{
    scripts::acquire,
    world::{Running, World, as_owner, eventually},
};

/// A process to keep a lock for. Killed and reaped at the end.
struct Watched(Child);

impl Watched {
    fn start() -> Self {
        Self(Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap())
    }

    fn id(&self) -> String {
        self.0.id().to_string()
    }

    /// Leaves a zombie.
    fn kill(&mut self) {
        self.0.kill().unwrap();
        let id = self.0.id();
        eventually("a zombie", || state(id) == Some('Z'));
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// A keeper, which has no parent that could clean up after it. Killed at the end.
pub(crate) struct Keeper(u32);

impl Keeper {
    /// The one that an answer names, if it does.
    pub(crate) fn of(answer: &Value) -> Option<Self> {
        let id = answer["keeper_pid"].as_u64()?;
        Some(Self(id.try_into().unwrap()))
    }

    fn kill(&self) {
        if command_line(self.0).contains("--keeper-of") {
            let _ = kill_process(pid(self.0), Signal::KILL);
        }
        self.await_end();
    }

    fn await_end(&self) {
        eventually("the keeper ends", || is_gone(self.0));
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A lock that is kept, and what keeps it.
struct Kept {
    answer: Value,
    owner: String,
    keeper: Keeper,
}

impl Kept {
    fn acquire(world: &World, watched: &Watched, options: &[&str]) -> Self {
        let (answer, owner) = acquire(world, &[&["x", "--pid", &watched.id()], options].concat());
        let keeper = Keeper::of(&answer).unwrap();
        Self { answer, owner, keeper }
    }
}

fn pid(id: u32) -> Pid {
    Pid::from_raw(id.try_into().unwrap()).unwrap()
}

/// The fields of `/proc/PID/stat` from the third one on.
fn stat(id: u32) -> Option<Vec<String>> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    Some(fields.split_whitespace().map(str::to_owned).collect())
}

fn state(id: u32) -> Option<char> {
    stat(id)?[0].chars().next()
}

/// Nobody may be there to reap a process in the background.
fn is_gone(id: u32) -> bool {
    matches!(state(id), None | Some('Z'))
}

fn command_line(id: u32) -> String {
    fs::read_to_string(format!("/proc/{id}/cmdline")).unwrap_or_default()
}

/// The keeper that a process has started.
fn keeper_of(parent: u32) -> Option<u32> {
    let ids = fs::read_dir("/proc").unwrap().flatten();
    let ids = ids.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_child = |id: &u32| stat(*id).is_some_and(|stat| stat[1] == parent.to_string());
    ids.filter(is_child).find(|id| command_line(*id).contains("--keeper-of"))
}

fn token(answer: &Value) -> u64 {
    answer["token"].as_str().unwrap().parse().unwrap()
}

#[test]
fn a_lock_is_kept_past_its_ttl_until_the_process_is_killed() {
    let world = World::new();
    let mut watched = Watched::start();
    let kept = Kept::acquire(&world, &watched, &["--ttl", "400ms"]);
    assert_eq!(kept.answer["kept_until_pid"].to_string(), watched.id());
    world.run(&["acquire", "x", "-w", "1200ms"]).assert_code(75);
    watched.kill();
    let (next, _) = acquire(&world, &["x", "-w", "50s"]);
    assert!(token(&next) > token(&kept.answer));
    kept.keeper.await_end();
}

#[test]
fn the_end_of_the_process_frees_the_lock_long_before_its_ttl() {
    let world = World::new();
    let mut watched = Watched::start();
    let kept = Kept::acquire(&world, &watched, &["--ttl", "24h"]);
    watched.kill();
    world.run(&["acquire", "x", "-w", "50s"]).assert_code(0);
    kept.keeper.await_end();
}

#[test]
fn a_process_that_does_not_run_is_a_usage_error() {
    let world = World::new();
    let mut watched = Watched::start();
    let id = watched.id();
    watched.kill();
    world.run(&["acquire", "x", "--pid", &id]).assert_code(64);
    drop(watched);
    world.run(&["acquire", "x", "--pid", &id]).assert_code(64);
    world.run(&["show", "x"]).assert_code(1);
}

#[test]
fn a_process_that_ends_ends_the_wait() {
    let world = World::new();
    let holder = world.hold("x");
    let mut watched = Watched::start();
    let waiter = world.start(&["acquire", "x", "--pid", &watched.id()]);
    eventually("a keeper", || keeper_of(waiter.id()).is_some());
    watched.kill();
    let waiter = waiter.finish();
    waiter.assert_code(64);
    world.let_go();
    holder.finish().assert_code(0);
    world.run(&["acquire", "x", "-n"]).assert_code(0);
}

#[test]
fn without_its_keeper_the_lock_ends_by_its_ttl_and_not_before() {
    let world = World::new();
    let watched = Watched::start();
    let before = Instant::now();
    let kept = Kept::acquire(&world, &watched, &["--ttl", "2s"]);
    kept.keeper.kill();
    // The process runs on and may be at work.
    let (next, _) = acquire(&world, &["x", "-w", "50s"]);
    assert!(before.elapsed() >= Duration::from_secs(2));
    assert!(token(&next) > token(&kept.answer));
    as_owner(&world, &kept.owner, &["renew", "x"]).assert_code(79);
}

#[test]
fn without_its_keeper_the_process_alone_holds_the_lock() {
    let world = World::new();
    let mut watched = Watched::start();
    let kept = Kept::acquire(&world, &watched, &["--ttl", "24h"]);
    kept.keeper.kill();
    world.run(&["acquire", "x", "-w", "300ms"]).assert_code(75);
    watched.kill();
    // Now there is proof that all of the holder is gone.
    world.run(&["acquire", "x", "-w", "50s"]).assert_code(0);
}

#[test]
fn a_release_ends_the_keeping() {
    let world = World::new();
    let watched = Watched::start();
    let kept = Kept::acquire(&world, &watched, &["--ttl", "1s"]);
    as_owner(&world, &kept.owner, &["release", "x"]).assert_code(0);
    let (_, next) = acquire(&world, &["x", "-n", "--ttl", "10m"]);
    kept.keeper.await_end();
    as_owner(&world, &next, &["release", "x"]).assert_code(0);
}

#[test]
fn a_break_ends_the_keeping() {
    let world = World::new();
    let watched = Watched::start();
    let kept = Kept::acquire(&world, &watched, &["--ttl", "1s"]);
    world.run(&["break", "x", "--yes"]).assert_code(0);
    kept.keeper.await_end();
    world.run(&["acquire", "x", "-w", "50s"]).assert_code(0);
}

#[test]
fn a_caller_that_is_killed_takes_its_keeper_along() {
    let world = World::new();
    let holder = world.hold("x");
    let watched = Watched::start();
    let waiter = world.start(&["acquire", "x", "--pid", &watched.id()]);
    eventually("a keeper", || keeper_of(waiter.id()).is_some());
    let keeper = keeper_of(waiter.id()).unwrap();
    waiter.signal(Signal::KILL);
    eventually("the keeper ends", || is_gone(keeper));
    world.let_go();
    holder.finish().assert_code(0);
    world.run(&["acquire", "x", "-n"]).assert_code(0);
}

#[test]
fn a_keeper_that_is_killed_while_it_waits_is_71() {
    let world = World::new();
    let _holder = world.hold("x");
    let watched = Watched::start();
    let waiter = world.start(&["acquire", "x", "--pid", &watched.id()]);
    eventually("a keeper", || keeper_of(waiter.id()).is_some());
    kill_process(pid(keeper_of(waiter.id()).unwrap()), Signal::KILL).unwrap();
    waiter.finish().assert_code(71);
}

#[test]
fn a_keeper_has_a_session_of_its_own_and_nothing_of_its_callers() {
    let world = World::new();
    let watched = Watched::start();
    let script = format!("exec \"$0\" acquire x --pid {} --store \"$1\" 7> seven", watched.id());
    let mut command = Command::new("sh");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_cerrojo"), world.store()]);
    let run = Running::start(world.prepare(command)).finish();
    let answer = crate::world::answer(&run);
    let owned = Keeper::of(&answer).unwrap();
    let keeper = owned.0;
    assert_eq!(stat(keeper).unwrap()[3], keeper.to_string(), "its session");
    assert!(!command_line(keeper).contains("local:"), "the store's URL may hold a password");
    for descriptor in fs::read_dir(format!("/proc/{keeper}/fd")).unwrap() {
        let target = fs::read_link(descriptor.unwrap().path()).unwrap_or_default();
        assert!(!target.ends_with("seven"), "a descriptor of the caller's");
    }
}

#[test]
fn a_shell_does_not_wait_for_the_keeper() {
    let world = World::new();
    let watched = Watched::start();
    // Both streams are pipes here, which a reader reads to the end.
    let script =
        format!("answer=$(\"$0\" acquire x --pid {} 2>&1) && echo \"$answer\"", watched.id());
    let mut command = Command::new("sh");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_cerrojo")]);
    let run = Running::start(world.prepare(command)).finish();
    let answer = crate::world::answer(&run);
    let _keeper = Keeper::of(&answer);
    assert_eq!(answer["kept_until_pid"].to_string(), watched.id());
    world.run(&["show", "x"]).assert_code(0);
}
