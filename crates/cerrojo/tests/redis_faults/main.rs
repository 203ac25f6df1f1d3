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

use cerrojo_testbed::need;
use libtest_mimic::Arguments;

fn main() -> ExitCode {
    if let Some(code) = child::main() {
        return code;
    }
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
    let is_ignored = need("redis-server").is_ignored();
    let trials = themes.into_iter().flatten();
    let trials = trials.map(|trial| trial.with_ignored_flag(is_ignored)).collect();
    let mut arguments = Arguments::from_args();
    // Most of a trial is waiting.
    arguments.test_threads = arguments.test_threads.or(Some(12));
    libtest_mimic::run(&arguments, trials).exit_code()
}
