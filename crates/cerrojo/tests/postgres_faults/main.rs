//! What goes wrong with a PostgreSQL server, with a pooler, and on the way to them: every call ends in time, a lock that is lost
//! reads lost, and all works again once the cause is gone. Servers that are broken on purpose are a trial's own; the others share
//! one, with a table for each.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a failed step fails the test"
)]

mod child;
mod clocks;
mod hang;
#[path = "../trials/heard.rs"]
mod heard;
mod late;
mod listening;
mod looks;
mod outage;
mod pooler;
mod refused;
mod room;
mod site;
mod standby;
mod tables;
mod tls;

use std::process::ExitCode;

use cerrojo_testbed::{Disk, need};
use libtest_mimic::{Arguments, Trial};

use crate::site::Shared;

fn main() -> ExitCode {
    if let Some(code) = child::main() {
        return code;
    }
    heard::prepare();
    let mut arguments = Arguments::from_args();
    // Most of a trial is waiting.
    arguments.test_threads = arguments.test_threads.or(Some(12));
    libtest_mimic::run(&arguments, trials()).exit_code()
}

fn trials() -> Vec<Trial> {
    let shared = Shared::default();
    let themes = [
        clocks::trials(&shared),
        hang::trials(&shared),
        late::trials(&shared),
        listening::trials(&shared),
        outage::trials(&shared),
        refused::trials(&shared),
        standby::trials(),
        tables::trials(&shared),
        tls::trials(&shared),
    ];
    let (server, pooler) = (need("postgres").is_ignored(), need("pgbouncer").is_ignored());
    let mut all = ignored_if(server, themes.into_iter().flatten());
    all.extend(ignored_if(server || pooler, pooler::trials(&shared)));
    all.extend(ignored_if(server || Disk::unavailable().is_some(), room::trials()));
    all
}

fn ignored_if(is_ignored: bool, trials: impl IntoIterator<Item = Trial>) -> Vec<Trial> {
    trials.into_iter().map(|trial| trial.with_ignored_flag(is_ignored)).collect()
}
