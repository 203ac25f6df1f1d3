//! Signals: passed on to the command, and ending a wait.

use rustix::process::Signal;

use crate::world::{Running, World, eventually};

const SIGNALS: [(&str, Signal); 4] =
    [("INT", Signal::INT), ("TERM", Signal::TERM), ("HUP", Signal::HUP), ("QUIT", Signal::QUIT)];

/// However the tests were started, these signals begin as they do in a terminal.
fn fresh(world: &World, options: &[&str], script: &str) -> Running {
    let mut command = world.command_with_signals("--default-signal=INT,TERM,HUP,QUIT");
    command.arg("run").args(options).args(["--", "sh", "-c", script]);
    Running::start(command)
}

#[test]
fn signals_are_passed_on_and_the_commands_answer_counts() {
    for (name, signal) in SIGNALS {
        let world = World::new();
        let script = format!(
            "trap 'echo {name} > got; exit 5' {name}; touch ready; i=0; \
             while [ $i -lt 600 ]; do sleep 0.05; i=$((i + 1)); done"
        );
        let run = fresh(&world, &["x"], &script);
        world.await_file("ready");
        run.signal(signal);
        run.finish().assert_code(5);
        assert_eq!(world.read("got").trim(), name);
        world.run(&["show", "x"]).assert_code(1);
    }
}

#[test]
fn the_whole_group_gets_the_signal() {
    let world = World::new();
    // The shell waits for a pipeline; TERM to the shell alone would leave the others running.
    let run = fresh(&world, &["x"], "flock sentinel sh -c 'touch ready; exec sleep 30' | cat");
    world.await_file("ready");
    run.signal(Signal::TERM);
    run.finish().assert_code(143);
    world.run_script(&["x"], "flock -w 20 sentinel true").assert_code(0);
}

#[test]
fn a_signal_that_was_ignored_stays_ignored() {
    let world = World::new();
    let mut command = world.command_with_signals("--ignore-signal=HUP");
    let script = "kill -HUP $$; touch ready; while [ ! -e go ]; do sleep 0.02; done; exit 4";
    command.args(["run", "x", "--", "sh", "-c", script]);
    let run = Running::start(command);
    world.await_file("ready");
    run.signal(Signal::HUP);
    world.touch("go");
    run.finish().assert_code(4);
}

#[test]
fn a_signal_ends_the_wait_and_leaves_the_queue() {
    let world = World::new();
    let holder = world.hold("x");
    for (name, signal) in SIGNALS {
        let waiter = fresh(&world, &["x", "--ttl", "10m"], "touch entered");
        eventually(name, || waiter.catches(signal));
        // It may be anywhere on its way into the queue: both before and behind are right.
        waiter.signal(signal);
        waiter.finish().assert_code(128 + signal.as_raw());
    }
    let next = world.start_script(&["x", "--wait", "30s"], "true");
    world.let_go();
    holder.finish().assert_code(0);
    // Had one of them kept its place, the lock would be its own for 10 minutes.
    next.finish().assert_code(0);
    assert!(!world.path("entered").exists());
}
