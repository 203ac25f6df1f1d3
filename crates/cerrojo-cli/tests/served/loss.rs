//! A lock that is lost, a runner that is killed, a server that is away.

use std::os::unix::process::ExitStatusExt;

use rustix::process::Signal;

use super::Trials;
use crate::{
    servers::{Servers, Site},
    world::eventually,
};

pub(crate) const TRIALS: Trials = &[
    ("a_killed_runners_lock_is_given_back_by_its_guardian", a_killed_runner),
    ("a_lock_broken_now_ends_the_command", a_lock_broken_now),
    ("a_command_is_ended_while_the_server_is_away", a_server_that_is_away),
    ("a_server_that_is_not_there_is_69", a_server_that_is_not_there),
];

/// A command that stays until it is told to end.
pub(crate) const STAYS: &str = "touch ready; while [ ! -e end ]; do sleep 0.05; done";

/// Nobody enters by the end of such a TTL.
fn a_killed_runner(servers: &Servers) {
    let site = servers.store();
    let world = &site.world;
    let runner = world.start_script(&["x", "--ttl", "10m", "--grace", "1s"], STAYS);
    world.await_file("ready");
    let next = world.start_script(&["x"], "true");
    runner.signal(Signal::KILL);
    assert_eq!(runner.finish().status.signal(), Some(9));
    next.finish().assert_code(0);
}

fn a_lock_broken_now(servers: &Servers) {
    let site = servers.store();
    let world = &site.world;
    let holder = world.start_script(&["x", "--ttl", "4s"], STAYS);
    world.await_file("ready");
    world.run(&["break", "x", "--yes", "--now"]).assert_code(0);
    world.run_script(&["x", "-n"], "true").assert_code(0);
    holder.finish().assert_code(79);
}

fn a_server_that_is_away(_: &Servers) {
    let site = Site::alone();
    let holder = site.world.start_script(&["x", "--ttl", "4s"], STAYS);
    site.world.await_file("ready");
    site.server.freeze().unwrap();
    holder.finish().assert_code(79);
    site.server.thaw().unwrap();
    // Given back by then, or ended by its TTL.
    eventually("free", || site.world.run(&["show", "x"]).status.code() == Some(1));
}

fn a_server_that_is_not_there(_: &Servers) {
    let site = Site::alone();
    site.server.kill().unwrap();
    for arguments in [
        &["ls"][..],
        &["run", "x", "-n", "--", "true"],
        &["acquire", "x", "-n"],
        &["store", "init"],
    ] {
        let run = site.world.run(arguments);
        run.assert_code(69);
        assert!(run.stderr.contains(&site.server.address()), "{run:?}");
        assert_eq!(run.stderr.matches("refused").count(), 1, "said once: {run:?}");
        assert_eq!(run.stderr.lines().count(), 1, "{run:?}");
        assert!(!run.stderr.contains(site.password()), "{run:?}");
    }
}
