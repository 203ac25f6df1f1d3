//! The runner under everything that can befall it: real processes, real signals, real terminals.
//!
//! Most of a trial is waiting, so many run at once.
#![allow(
    clippy::disallowed_methods,
    reason = "a test that watches other processes polls, and its own clock decides nothing"
)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stderr,
    reason = "tests"
)]
#![cfg(target_os = "linux")]

mod commands;
mod documents;
mod matrix;
mod processes;
mod streams;
mod terminal;
#[path = "../cli/world.rs"]
#[allow(dead_code, reason = "each test target uses a part")]
mod world;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};

/// A trial's work: it panics when it proves wrong.
type Proof = fn();

const THREADS: usize = 8;

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(THREADS);
    let plain = [commands::TRIALS, streams::TRIALS, documents::TRIALS].concat();
    let mut trials: Vec<_> = plain.into_iter().map(|(name, proof)| trial(name, proof)).collect();
    trials.extend(matrix::rows().map(|row| trial(&row.name(), move || row.prove())));
    let missing = terminal::is_missing();
    let on_terminals = terminal::TRIALS.iter().map(|(name, proof)| trial(name, *proof));
    trials.extend(on_terminals.map(|trial| trial.with_kind("tmux").with_ignored_flag(missing)));
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn trial(name: &str, proof: impl FnOnce() + Send + 'static) -> Trial {
    let run = move || -> Result<(), Failed> {
        proof();
        Ok(())
    };
    Trial::test(name, run)
}
