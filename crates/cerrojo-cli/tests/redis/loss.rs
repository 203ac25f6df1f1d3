//! A lock that is lost, a runner that is killed, a server that is away.

use std::os::unix::process::ExitStatusExt;

use rustix::process::Signal;

use crate::{
    PASSWORD, Proof, started, url,
    world::{World, eventually},
};

pub(crate) const TRIALS: &[(&str, Proof)] = &[
    ("a_killed_runners_lock_is_given_back_by_its_guardian", a_killed_runner),
    ("a_lock_broken_now_ends_the_command", a_lock_broken_now),
    ("a_command_is_ended_while_the_server_is_away", a_server_that_is_away),
    ("a_server_that_is_not_there_is_69", a_server_that_is_not_there),
];

const STAYS: &str = "touch ready; while :; do sleep 0.05; done";

/// Nobody enters by the end of such a TTL.
fn a_killed_runner() {
    let (_server, world) = started();
    let runner = world.start_script(&["x", "--ttl", "10m", "--grace", "1s"], STAYS);
    world.await_file("ready");
    let next = world.start_script(&["x"], "true");
    runner.signal(Signal::KILL);
    assert_eq!(runner.finish().status.signal(), Some(9));
    next.finish().assert_code(0);
}

fn a_lock_broken_now() {
    let (_server, world) = started();
    let holder = world.start_script(&["x", "--ttl", "4s"], STAYS);
    world.await_file("ready");
    world.run(&["break", "x", "--yes", "--now"]).assert_code(0);
    world.run_script(&["x", "-n"], "true").assert_code(0);
    holder.finish().assert_code(79);
}

fn a_server_that_is_away() {
    let (server, world) = started();
    let holder = world.start_script(&["x", "--ttl", "4s"], STAYS);
    world.await_file("ready");
    server.freeze().unwrap();
    holder.finish().assert_code(79);
    server.thaw().unwrap();
    // Given back by then, or ended by its TTL.
    eventually("free", || world.run(&["show", "x"]).status.code() == Some(1));
}

fn a_server_that_is_not_there() {
    let (server, _) = started();
    server.kill().unwrap();
    let world = World::on(url(&server, PASSWORD));
    for arguments in [&["ls"][..], &["run", "x", "-n", "--", "true"], &["acquire", "x", "-n"]] {
        let run = world.run(arguments);
        run.assert_code(69);
        assert!(run.stderr.contains(&server.address()), "{run:?}");
        assert_eq!(run.stderr.matches("refused").count(), 1, "said once: {run:?}");
        assert_eq!(run.stderr.lines().count(), 1, "{run:?}");
        assert!(!run.stderr.contains(PASSWORD), "{run:?}");
    }
}
