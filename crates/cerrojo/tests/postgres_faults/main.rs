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
#[path = "../trials/faults.rs"]
mod faults;
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
use libtest_mimic::Trial;

use crate::site::{Shared, run};

fn main() -> ExitCode {
    child::main().unwrap_or_else(|| {
        heard::prepare();
        run("postgres", trials(), 12)
    })
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
    let mut all: Vec<_> = themes.into_iter().flatten().collect();
    all.extend(ignored_if(need("pgbouncer").is_ignored(), pooler::trials(&shared)));
    all.extend(ignored_if(Disk::unavailable().is_some(), room::trials()));
    all
}

fn ignored_if(is_ignored: bool, trials: Vec<Trial>) -> impl Iterator<Item = Trial> {
    trials.into_iter().map(move |trial| trial.with_ignored_flag(is_ignored))
}
