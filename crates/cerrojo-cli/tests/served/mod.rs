//! What is the same on stores on servers, whichever they are. A target's `servers` says how a trial gets a store of its
//! own, and what its server tells.

pub(crate) mod loss;
pub(crate) mod scripts;
pub(crate) mod secrets;
pub(crate) mod shared;

use std::{process::ExitCode, sync::Arc};

use cerrojo_testbed::need;
use libtest_mimic::{Arguments, Trial};
use serde_json::Value;

use crate::{
    servers::Servers,
    world::{self, Finished, World},
};

/// A trial's work: it panics when it proves wrong.
pub(crate) type Proof = fn(&Servers);
pub(crate) type Trials = &'static [(&'static str, Proof)];

const THREADS: usize = 8;

/// Runs the common trials and more; without `program` all are ignored.
pub(crate) fn run(program: &str, more: &[Trials]) -> ExitCode {
    let common = [scripts::TRIALS, shared::TRIALS, loss::TRIALS, secrets::TRIALS];
    let servers = Arc::<Servers>::default();
    let is_ignored = need(program).is_ignored();
    let trial = |(name, proof): &(&'static str, Proof)| {
        let (servers, proof) = (Arc::clone(&servers), *proof);
        let run = move || {
            proof(&servers);
            Ok(())
        };
        Trial::test(*name, run).with_ignored_flag(is_ignored)
    };
    let trials = common.iter().chain(more).copied().flatten().map(trial).collect();
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(THREADS);
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// A subcommand by the owner of whom an answer told.
pub(crate) fn as_owner(world: &World, told: &Value, arguments: &[&str]) -> Finished {
    world::as_owner(world, told["owner"].as_str().unwrap(), arguments)
}

/// With everything logged.
pub(crate) fn traced(world: &World, arguments: &[&str]) -> Finished {
    let mut command = world.command();
    command.args(arguments).env("CERROJO_LOG", "trace");
    world::Running::start(command).finish()
}
