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
mod servers;
mod shared;
#[path = "../cli/world.rs"]
#[allow(dead_code, reason = "each test target uses a part")]
mod world;

use std::{process::ExitCode, sync::Arc};

use cerrojo_testbed::need;
use libtest_mimic::{Arguments, Trial};

use crate::servers::Servers;

/// A trial's work: it panics when it proves wrong.
type Proof = fn(&Servers);

const THREADS: usize = 8;

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(THREADS);
    let is_ignored = need("postgres").is_ignored();
    let proofs =
        [init::TRIALS, scripts::TRIALS, shared::TRIALS, loss::TRIALS, secrets::TRIALS].concat();
    let servers = Arc::new(Servers::default());
    let trials = proofs.into_iter().map(|(name, proof)| {
        let servers = Arc::clone(&servers);
        let run = move || {
            proof(&servers);
            Ok(())
        };
        Trial::test(name, run).with_ignored_flag(is_ignored)
    });
    // The server is stopped with the last of those who have it.
    let conclusion = libtest_mimic::run(&arguments, trials.collect());
    drop(servers);
    conclusion.exit_code()
}
