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

use cerrojo_testbed::need;
use libtest_mimic::Arguments;

fn main() -> ExitCode {
    if let Some(code) = child::main() {
        return code;
    }
    heard::prepare();
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
    let is_ignored = need("redis-server").is_ignored();
    let trials = themes.into_iter().flatten();
    let trials = trials.map(|trial| trial.with_ignored_flag(is_ignored)).collect();
    let mut arguments = Arguments::from_args();
    // Most of a trial is waiting.
    arguments.test_threads = arguments.test_threads.or(Some(12));
    libtest_mimic::run(&arguments, trials).exit_code()
}
