//! Commands that do not make it easy, and a store that goes away.

use std::{
    fs::File,
    time::{Duration, Instant},
};

use rustix::{fs::FlockOperation, process::Signal};

use crate::{
    Proof,
    processes::Cast,
    world::{Running, World, eventually},
};

pub(crate) const TRIALS: &[(&str, Proof)] = &[
    ("a_store_that_goes_away_ends_the_command_while_its_lease_is_valid", store_goes_away),
    ("a_killed_runners_stubborn_command_is_gone_before_the_next_enters", stubborn),
    ("a_command_that_closes_everything_is_waited_for", closes_everything),
    ("a_command_that_closes_everything_is_ended_with_its_lease", closes_everything_and_is_ended),
    ("what_a_command_leaves_behind_is_ended_before_the_next_enters", forks_and_exits),
    ("a_background_process_is_ended_when_its_runner_is_killed", background_of_a_killed_runner),
    ("a_killed_runner_frees_long_before_its_ttl", killed_runner_frees),
    ("what_outlives_runner_and_guardian_in_the_group_keeps_the_lock", group_keeps_the_lock),
];

/// The file stays locked until all processes that have it open are gone.
const ALONE: &str = "exec 9> group; flock -n 9 || exit 9; echo $CERROJO_TOKEN > token;";
const FOREVER: &str = "while [ -e stay ]; do sleep 0.05; done";
const NEXT: &str = "flock -n group true || exit 8; echo $CERROJO_TOKEN";

fn world() -> World {
    let world = World::new();
    world.touch("stay");
    world
}

fn held(world: &World, options: &[&str], script: &str) -> (Running, Cast) {
    let runner = world.start_script(options, script);
    world.await_file("ready");
    let cast = Cast::of(&runner);
    (runner, cast)
}

#[track_caller]
fn enters_alone(world: &World, next: Running) {
    let next = next.finish();
    next.assert_code(0);
    let token = |text: &str| text.trim().parse::<u64>().unwrap();
    assert!(token(&next.stdout) > token(&world.read("token")));
}

/// Whoever has the turn of the embedded store keeps all others out of it.
fn store_goes_away() {
    const TTL: Duration = Duration::from_secs(8);
    let world = world();
    let script = format!("{ALONE} trap 'touch told' TERM; touch ready; {FOREVER}");
    let (runner, cast) = held(&world, &["x", "--ttl", "8s"], &script);
    let turn = File::options().append(true).open(world.path("store/turn")).unwrap();
    rustix::fs::flock(&turn, FlockOperation::LockExclusive).unwrap();
    // No renewal is later than this.
    let away = Instant::now();
    eventually("the end of the command", || !cast.command.is_alive());
    assert!(away.elapsed() < TTL, "it outlived its lease");
    assert!(world.path("told").exists(), "it got no TERM");
    rustix::fs::flock(&turn, FlockOperation::Unlock).unwrap();
    runner.finish().assert_code(79);
    enters_alone(&world, world.start_script(&["x"], NEXT));
}

fn stubborn() {
    let world = world();
    let script = format!("{ALONE} trap '' TERM; touch ready; {FOREVER}");
    let (runner, cast) = held(&world, &["x", "--ttl", "10m", "--grace", "1s"], &script);
    let next = world.start_script(&["x"], NEXT);
    cast.runner.signal(Signal::KILL);
    enters_alone(&world, next);
    assert!(!cast.command.is_alive());
    assert_eq!(runner.finish().status.code(), None);
}

fn closes_everything() {
    let world = world();
    let script = format!("touch ready; exec 0<&- 1>&- 2>&-; {FOREVER}; exit 6");
    let (runner, _cast) = held(&world, &["x"], &script);
    world.run_script(&["x", "-n"], "true").assert_code(75);
    std::fs::remove_file(world.path("stay")).unwrap();
    runner.finish().assert_code(6);
    world.run_script(&["x", "-n"], "true").assert_code(0);
}

fn closes_everything_and_is_ended() {
    let world = world();
    let script = format!("{ALONE} exec 0<&- 1>&- 2>&-; trap '' TERM; touch ready; {FOREVER}");
    let (runner, _cast) = held(&world, &["x", "--ttl", "4s"], &script);
    let next = world.start_script(&["x"], NEXT);
    world.run(&["break", "x", "--yes"]).assert_code(0);
    runner.finish().assert_code(79);
    enters_alone(&world, next);
}

fn forks_and_exits() {
    let world = world();
    let left = format!("exec 9> left; flock 9; trap '' TERM; touch ready; {FOREVER}");
    let script = format!("({left}) & while [ ! -e ready ]; do sleep 0.02; done; exit 5");
    world.run_script(&["x", "--ttl", "10m", "--grace", "1s"], &script).assert_code(5);
    world.run_script(&["x", "-n"], "flock -n left true").assert_code(0);
}

fn background_of_a_killed_runner() {
    let world = world();
    let script = format!(
        "{ALONE} (trap '' TERM; {FOREVER}) & (trap '' TERM; {FOREVER}) & touch ready; wait"
    );
    let (_runner, cast) = held(&world, &["x", "--ttl", "10m", "--grace", "1s"], &script);
    let next = world.start_script(&["x"], NEXT);
    cast.runner.signal(Signal::KILL);
    enters_alone(&world, next);
}

fn killed_runner_frees() {
    let world = world();
    let (_runner, cast) =
        held(&world, &["x", "--ttl", "10m"], &format!("{ALONE} touch ready; {FOREVER}"));
    cast.runner.signal(Signal::KILL);
    enters_alone(&world, world.start_script(&["x", "-w", "60s"], NEXT));
    assert!(!cast.command.is_alive());
}

/// The kernel ends the command's first process only. The store asks for the whole group.
fn group_keeps_the_lock() {
    let world = world();
    let script = format!("{ALONE} ({FOREVER}) & touch ready; wait");
    let (_runner, cast) = held(&world, &["x", "--ttl", "10m"], &script);
    cast.guardian.signal(Signal::KILL);
    cast.runner.signal(Signal::KILL);
    eventually("the end of the command", || !cast.command.is_alive());
    let next = world.start_script(&["x"], NEXT);
    for _ in 0..3 {
        world.run_script(&["x", "-n"], "true").assert_code(75);
    }
    std::fs::remove_file(world.path("stay")).unwrap();
    enters_alone(&world, next);
}
