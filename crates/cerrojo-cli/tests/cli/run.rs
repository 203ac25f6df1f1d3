//! What `run` can be asked for beside a command, and what it says while it waits.

use rustix::process::Signal;

use crate::world::{Running, World, eventually};

/// However the tests were started, signals begin as they do in a terminal.
fn fresh(world: &World, arguments: &[&str]) -> Running {
    let mut command = world.command_with_signals("--default-signal=INT,TERM,HUP,QUIT");
    command.args(arguments);
    Running::start(command)
}

#[test]
fn a_string_is_run_by_the_shell() {
    let world = World::new();
    let run = world.run(&["run", "x", "-c", "echo $CERROJO_LOCK; exit 6"]);
    run.assert_code(6);
    assert_eq!(run.stdout, "x\n");
}

#[test]
fn without_a_command_the_lock_is_held_until_a_signal_comes() {
    for signal in [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT] {
        let world = World::new();
        let holder = fresh(&world, &["run", "x"]);
        eventually("it holds", || world.run(&["show", "x"]).code() == 0);
        world.run_script(&["x", "-n"], "true").assert_code(75);
        // It is held a moment before it is said.
        eventually("it says so", || !holder.told().is_empty());
        holder.signal(signal);
        let run = holder.finish();
        run.assert_code(0);
        assert!(run.stdout.starts_with("x is held by us, token "), "{run:?}");
        world.run_script(&["x", "-n"], "true").assert_code(0);
    }
}

#[test]
fn without_a_command_a_loss_is_79() {
    let world = World::new();
    let holder = fresh(&world, &["run", "x", "--ttl", "1s"]);
    eventually("it says that it holds", || !holder.told().is_empty());
    world.run(&["break", "x", "--yes"]).assert_code(0);
    holder.finish().assert_code(79);
}

#[test]
fn signals_that_end_nothing_reach_the_command_too() {
    let world = World::new();
    let script = "trap 'touch usr1' USR1; trap 'touch usr2' USR2; trap 'touch winch' WINCH; touch ready; \
                  while [ ! -e usr1 ] || [ ! -e usr2 ] || [ ! -e winch ]; do sleep 0.02; done; exit 4";
    let run = fresh(&world, &["run", "x", "-c", script]);
    world.await_file("ready");
    for signal in [Signal::USR1, Signal::USR2, Signal::WINCH] {
        run.signal(signal);
    }
    run.finish().assert_code(4);
}

#[test]
fn a_waiter_says_once_who_holds_the_lock() {
    let world = World::new();
    let holder = world.hold("x");
    let waiter = world.start_script(&["x"], "true");
    let json = world.start(&["--json", "run", "x", "--", "true"]);
    for waiting in [&waiter, &json] {
        eventually("it says that it waits", || !waiting.said().is_empty());
    }
    world.let_go();
    holder.finish().assert_code(0);
    let pid = holder_pid(&waiter.finish().stderr, "pid ");
    assert_eq!(pid, holder_pid(&json.finish().stderr, "\"pid\":"));
    assert!(pid > 1);
}

#[track_caller]
fn holder_pid(said: &str, before: &str) -> u32 {
    assert_eq!(said.lines().count(), 1, "{said}");
    let digits = said.split(before).nth(1).unwrap().split(|c: char| !c.is_ascii_digit()).next();
    digits.unwrap().parse().unwrap()
}

/// In a container the first process may reap nobody: then what it inherits stays for good.
#[test]
fn the_guardian_is_gone_before_the_runner() {
    let world = World::new();
    for script in ["echo $PPID", "echo $PPID; kill -9 $$"] {
        let run = world.run_script(&["x"], script);
        let guardian = format!("/proc/{}", run.stdout.trim());
        assert!(!std::path::Path::new(&guardian).exists(), "{run:?}");
    }
}

#[test]
fn what_guardian_and_gate_are_started_with_is_no_use_to_others() {
    let world = World::new();
    for hidden in [&["--guardian-of", "x", "true"][..], &["--gate-of", "1", "x", "true"]] {
        assert_ne!(world.run(hidden).code(), 0);
    }
}
