//! What goes wrong with a Redis server, on the way to it, and with those who write to it: every call ends in time, a lock that
//! is lost reads lost, and all works again once the cause is gone. Each trial has servers of its own.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a failed step fails the test"
)]

mod child;
mod cluster;
mod failover;
#[path = "../trials/faults.rs"]
mod faults;
mod hang;
mod keys;
mod late;
mod outage;
mod refused;
mod replicas;
mod room;
mod site;
mod strangers;

use std::process::ExitCode;

use libtest_mimic::Trial;

use crate::site::run;

fn main() -> ExitCode {
    child::main().unwrap_or_else(|| run("redis-server", trials(), 12))
}

fn trials() -> impl Iterator<Item = Trial> {
    let themes = [
        cluster::trials(),
        failover::trials(),
        hang::trials(),
        keys::trials(),
        late::trials(),
        outage::trials(),
        refused::trials(),
        replicas::trials(),
        room::trials(),
        strangers::trials(),
    ];
    themes.into_iter().flatten()
}
