//! A lease that is lost takes the command with it, before anyone else can enter.

use std::os::unix::process::ExitStatusExt;

use rustix::process::Signal;

use crate::world::{Running, World};

/// What a holder does until it is ended: `sentinel` stays locked until all its processes are gone.
const STUBBORN: &str = "exec 9> sentinel; flock -n 9 || exit 9; echo $CERROJO_TOKEN > token; trap '' TERM; \
                        touch ready; i=0; while [ $i -lt 600 ]; do sleep 0.05; i=$((i + 1)); done";
/// The leader ends at once when told to; what it has started does not.
const STUBBORN_GRANDCHILD: &str = "exec 9> sentinel; flock -n 9 || exit 9; echo $CERROJO_TOKEN > token; \
                                   (trap '' TERM; touch ready; i=0; while [ $i -lt 600 ]; do sleep 0.05; \
                                   i=$((i + 1)); done) & wait";
/// The same in a session of its own.
const STUBBORN_AWAY: &str = "exec 9> sentinel; flock -n 9 || exit 9; echo $CERROJO_TOKEN > token; trap : TERM; \
                             touch ready; i=0; while [ $i -lt 600 ]; do sleep 0.05; i=$((i + 1)); done";
const NEXT: &str = "flock -n sentinel true || exit 8; echo $CERROJO_TOKEN";

fn holder(world: &World, script: &str) -> Running {
    let holder = world.start_script(&["x", "--ttl", "4s"], script);
    world.await_file("ready");
    holder
}

#[track_caller]
fn is_gone_before_the_next_enters(script: &str) {
    let world = World::new();
    let holder = holder(&world, script);
    let next = world.start_script(&["x"], NEXT);
    world.run(&["break", "x", "--yes"]).assert_code(0);
    holder.finish().assert_code(79);
    let next = next.finish();
    next.assert_code(0);
    let token = |text: &str| text.trim().parse::<u64>().unwrap();
    assert!(token(&next.stdout) > token(&world.read("token")));
}

#[test]
fn a_command_that_ignores_term_is_gone_before_the_next_enters() {
    is_gone_before_the_next_enters(STUBBORN);
}

#[test]
fn a_grandchild_that_ignores_term_is_gone_before_the_next_enters() {
    is_gone_before_the_next_enters(STUBBORN_GRANDCHILD);
}

/// A longer TTL here: the grace has to suffice for cleaning up on a busy machine.
#[track_caller]
fn can_clean_up(script: &str) {
    let world = World::new();
    let script = format!("trap 'touch cleaned; exit 0' TERM; touch ready; {script}");
    let holder = world.start_script(&["x", "--ttl", "12s"], &script);
    world.await_file("ready");
    world.run(&["break", "x", "--yes"]).assert_code(0);
    let run = holder.finish();
    run.assert_code(79);
    assert!(run.stderr.contains("cerrojo: the lease of `x` could not be kept"), "{run:?}");
    assert!(world.path("cleaned").exists());
}

#[test]
fn a_command_that_heeds_term_can_clean_up() {
    can_clean_up("i=0; while [ $i -lt 600 ]; do sleep 0.05; i=$((i + 1)); done");
}

#[test]
fn a_stopped_command_is_woken_and_can_clean_up() {
    can_clean_up("kill -STOP $$; sleep 30");
}

#[test]
fn a_lock_broken_now_is_free_at_once_and_ends_the_command_later() {
    let world = World::new();
    let holder = holder(&world, STUBBORN);
    let broken = world.run(&["break", "x", "--yes", "--now"]);
    broken.assert_code(0);
    assert!(broken.stdout.contains("only a fence protects now"), "{broken:?}");
    let next = world.run_script(&["x", "-n"], "echo $CERROJO_TOKEN");
    next.assert_code(0);
    assert!(
        next.stdout.trim().parse::<u64>().unwrap() > world.read("token").trim().parse().unwrap()
    );
    holder.finish().assert_code(79);
}

#[test]
fn a_command_that_ends_after_its_lock_was_taken_is_79_too() {
    let world = World::new();
    // The TTL is so long that no renewal comes between: only the release finds out.
    let script = "touch ready; while [ ! -e go ]; do sleep 0.02; done";
    let holder = world.start_script(&["x", "--ttl", "1h"], script);
    world.await_file("ready");
    world.run(&["break", "x", "--yes", "--now"]).assert_code(0);
    world.touch("go");
    let run = holder.finish();
    run.assert_code(79);
    assert!(
        run.stderr.contains("cerrojo: the lease of `x` was lost before the command ended"),
        "{run:?}"
    );
}

#[track_caller]
fn a_killed_runner_takes_it_along(script: &str) {
    let world = World::new();
    // Nobody enters by the end of such a TTL.
    let runner = world.start_script(&["x", "--ttl", "10m", "--grace", "1s"], script);
    world.await_file("ready");
    let next = world.start_script(&["x"], NEXT);
    runner.signal(Signal::KILL);
    assert_eq!(runner.finish().status.signal(), Some(9));
    let next = next.finish();
    next.assert_code(0);
    let token = |text: &str| text.trim().parse::<u64>().unwrap();
    assert!(token(&next.stdout) > token(&world.read("token")));
}

#[test]
fn a_killed_runner_takes_a_stubborn_command_along_before_the_next_enters() {
    a_killed_runner_takes_it_along(STUBBORN);
}

#[test]
fn a_killed_runner_takes_what_left_the_group_along_before_the_next_enters() {
    a_killed_runner_takes_it_along(&format!("setsid sh -c '{STUBBORN_AWAY}' & wait"));
}

#[test]
fn with_ignore_the_command_runs_on_and_the_code_says_that_the_lock_was_lost() {
    let world = World::new();
    let script = "touch ready; while [ ! -e go ]; do sleep 0.02; done; touch done";
    let holder = world.start_script(&["x", "--ttl", "1s", "--on-lost", "ignore"], script);
    world.await_file("ready");
    world.run(&["break", "x", "--yes", "--now"]).assert_code(0);
    // Long enough for the loss to be noticed, and for a command that is ended to be gone.
    std::thread::sleep(std::time::Duration::from_secs(2));
    world.touch("go");
    holder.finish().assert_code(79);
    assert!(world.path("done").exists());
}

#[test]
fn with_kill_there_is_no_time_to_clean_up() {
    let world = World::new();
    let script = "trap 'touch cleaned' TERM; touch ready; while :; do sleep 0.05; done";
    let holder = world.start_script(&["x", "--ttl", "4s", "--on-lost", "kill"], script);
    world.await_file("ready");
    world.run(&["break", "x", "--yes"]).assert_code(0);
    holder.finish().assert_code(79);
    assert!(!world.path("cleaned").exists());
}
