//! Measures Cerrojo beside other systems, in interleaved rounds of one run.
//!
//! It prints medians, their spread and ratios to a baseline, beside what we aim at, and judges no time. What it does judge is
//! safety: a lost update, an overlap or a falling token ends it with exit code 1.

mod aim;
mod args;
mod etcd;
mod fleet_turns;
mod harness;
mod machine;
mod questions;
mod report;
mod stats;
mod store;
mod turns;
mod worker;

use std::{error::Error, process::ExitCode};

use cerrojo_bench::{Result, process};
use clap::Parser;

use crate::{args::Args, harness::Outcome, report::Report};

fn main() -> ExitCode {
    let args = Args::parse();
    let done = match &args.role {
        Some(role) => worker::run(role).map(|()| true),
        None => measure(&args),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => fail(&*error),
    }
}

fn fail(error: &dyn Error) -> ExitCode {
    // Were stderr closed, the exit code would still tell.
    drop(report::to_stderr(&format!("cerrojo-bench: {error}")));
    ExitCode::FAILURE
}

/// Asks the questions; true when nothing unsafe was seen and every contestant could be measured.
fn measure(args: &Args) -> Result<bool> {
    let questions = questions::matching(args)?;
    let mut report = Report::new(machine::describe(args.folder())?);
    report.print_machine()?;
    for question in questions {
        let outcome = harness::ask(question, args)?;
        report::print(&outcome)?;
        report.outcomes.push(outcome);
    }
    report.write(args.json.as_deref())?;
    Ok(report.outcomes.iter().all(Outcome::is_good))
}
