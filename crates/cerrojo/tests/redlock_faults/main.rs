//! What goes wrong with some of the nodes of a Redlock, and what must not come of it. Each trial has nodes of its own.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a failed step fails the test"
)]

mod child;
mod connecting;
mod grace;
#[path = "../trials/heard.rs"]
mod heard;
mod leftovers;
mod one_bad;
mod quorum;
mod restarts;
mod site;
mod users;
mod waiters;

use std::process::ExitCode;

use libtest_mimic::Trial;

use crate::site::run;

fn main() -> ExitCode {
    child::main().unwrap_or_else(|| {
        heard::prepare();
        run("redis-server", trials(), 12)
    })
}

fn trials() -> impl Iterator<Item = Trial> {
    let themes = [
        connecting::trials(),
        grace::trials(),
        leftovers::trials(),
        one_bad::trials(),
        quorum::trials(),
        restarts::trials(),
        users::trials(),
        waiters::trials(),
    ];
    themes.into_iter().flatten()
}
