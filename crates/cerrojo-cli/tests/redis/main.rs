//! The real binary on a store of approximate locks: a private Redis server for each trial, with a password.
#![allow(
    clippy::disallowed_methods,
    reason = "a test that watches other processes polls, and its own clock decides nothing"
)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]
#![cfg(target_os = "linux")]

mod redlock;
mod scripts;
#[path = "../served/mod.rs"]
mod served;
mod servers;
#[path = "../cli/world.rs"]
#[allow(dead_code, reason = "each test target uses a part")]
mod world;

use std::process::ExitCode;

fn main() -> ExitCode {
    served::run("redis-server", &[scripts::TRIALS, redlock::TRIALS])
}
