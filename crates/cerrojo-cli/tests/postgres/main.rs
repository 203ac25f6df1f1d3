//! The real binary on a store in PostgreSQL: one private server for all trials that break nothing, a schema for each trial, and two roles,
//! of which one makes the tables and the other may use them only.
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

mod init;
mod loss;
mod scripts;
mod secrets;
#[path = "../served/mod.rs"]
mod served;
mod servers;
#[path = "../cli/world.rs"]
#[allow(dead_code, reason = "each test target uses a part")]
mod world;

use std::process::ExitCode;

fn main() -> ExitCode {
    served::run("postgres", &[init::TRIALS, scripts::TRIALS, loss::TRIALS, secrets::TRIALS])
}
