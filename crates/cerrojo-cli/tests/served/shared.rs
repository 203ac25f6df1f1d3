//! Runs that share one store.

use std::fs;

use super::Trials;
use crate::{
    servers::Servers,
    world::{Running, eventually},
};

pub(crate) const TRIALS: Trials = &[
    ("runs_that_count_lose_nothing", runs_that_count_lose_nothing),
    ("runs_wait_in_the_order_in_which_they_came", runs_wait_in_the_order_in_which_they_came),
    ("a_refusal_names_the_holder", a_refusal_names_the_holder),
    ("a_wait_that_is_given_up_leaves_no_place", a_wait_that_is_given_up_leaves_no_place),
];

fn runs_that_count_lose_nothing(servers: &Servers) {
    let site = servers.store();
    let world = &site.world;
    fs::write(world.path("count"), "0").unwrap();
    let script = "n=$(cat count); sleep 0.01; echo $((n + 1)) > count";
    let runs: Vec<Running> = (0..12).map(|_| world.start_script(&["x"], script)).collect();
    runs.into_iter().for_each(|run| run.finish().assert_code(0));
    assert_eq!(world.read("count").trim(), "12");
}

fn runs_wait_in_the_order_in_which_they_came(servers: &Servers) {
    let site = servers.store();
    let holder = site.world.hold("x");
    let waiters: Vec<Running> = (1..=4)
        .map(|place| {
            let waiter = site.world.start_script(&["x"], &format!("echo {place} >> order"));
            eventually("a place in the line", || site.in_line() == place.to_string());
            waiter
        })
        .collect();
    site.world.let_go();
    holder.finish().assert_code(0);
    waiters.into_iter().for_each(|waiter| waiter.finish().assert_code(0));
    assert_eq!(site.world.read("order"), "1\n2\n3\n4\n");
}

fn a_refusal_names_the_holder(servers: &Servers) {
    let site = servers.store();
    let world = &site.world;
    let holder = world.hold("x");
    let refused = world.run_script(&["x", "-n"], "true");
    refused.assert_code(75);
    assert!(refused.stderr.contains(&format!("pid {}", holder.id())), "{refused:?}");
}

/// By its deadline, and by a signal.
fn a_wait_that_is_given_up_leaves_no_place(servers: &Servers) {
    let site = servers.store();
    let _holder = site.world.hold("x");
    site.world.run_script(&["x", "-w", "300ms"], "true").assert_code(75);
    let waiter = site.world.start_script(&["x"], "true");
    eventually("a place in the line", || site.in_line() == "1");
    waiter.signal(rustix::process::Signal::TERM);
    waiter.finish().assert_code(143);
    assert_eq!(site.in_line(), "0");
}
