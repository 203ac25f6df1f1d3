//! Runs that share one server.

use std::fs;

use crate::{Proof, started, world::Running};

pub(crate) const TRIALS: &[(&str, Proof)] = &[
    ("runs_that_count_lose_nothing", runs_that_count_lose_nothing),
    ("runs_wait_in_the_order_in_which_they_came", runs_wait_in_the_order_in_which_they_came),
    ("a_refusal_names_the_holder", a_refusal_names_the_holder),
];

fn runs_that_count_lose_nothing() {
    let (_server, world) = started();
    fs::write(world.path("count"), "0").unwrap();
    let script = "n=$(cat count); sleep 0.01; echo $((n + 1)) > count";
    let runs: Vec<Running> = (0..12).map(|_| world.start_script(&["x"], script)).collect();
    runs.into_iter().for_each(|run| run.finish().assert_code(0));
    assert_eq!(world.read("count").trim(), "12");
}

fn runs_wait_in_the_order_in_which_they_came() {
    let (server, world) = started();
    let holder = world.hold("x");
    let in_line = || server.command(&["ZCARD", "cerrojo:{x}:line"]).unwrap();
    let waiters: Vec<Running> = (1..=4)
        .map(|place| {
            let waiter = world.start_script(&["x"], &format!("echo {place} >> order"));
            let wanted = place.to_string();
            crate::world::eventually("a place in the line", || in_line() == wanted.as_str());
            waiter
        })
        .collect();
    world.let_go();
    holder.finish().assert_code(0);
    waiters.into_iter().for_each(|waiter| waiter.finish().assert_code(0));
    assert_eq!(world.read("order"), "1\n2\n3\n4\n");
}

fn a_refusal_names_the_holder() {
    let (_server, world) = started();
    let holder = world.hold("x");
    let refused = world.run_script(&["x", "-n"], "true");
    refused.assert_code(75);
    assert!(refused.stderr.contains(&format!("pid {}", holder.id())), "{refused:?}");
}
