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

mod loss;
mod redlock;
mod scripts;
mod secrets;
mod shared;
#[path = "../cli/world.rs"]
#[allow(dead_code, reason = "each test target uses a part")]
mod world;

use std::process::ExitCode;

use cerrojo_testbed::{RedisServer, need};
use libtest_mimic::{Arguments, Trial};

use crate::world::World;

/// A trial's work: it panics when it proves wrong.
type Proof = fn();

const THREADS: usize = 8;
/// The password of every server here.
const PASSWORD: &str = "hush-hush";

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(THREADS);
    let is_ignored = need("redis-server").is_ignored();
    let proofs =
        [scripts::TRIALS, shared::TRIALS, loss::TRIALS, secrets::TRIALS, redlock::TRIALS].concat();
    let trials = proofs.into_iter().map(|(name, proof)| {
        let run = move || {
            proof();
            Ok(())
        };
        Trial::test(name, run).with_ignored_flag(is_ignored)
    });
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}

/// A server of one's own, and a folder in which its URL is the store.
fn started() -> (RedisServer, World) {
    let server = RedisServer::builder().password(PASSWORD).start().unwrap();
    let world = World::on(url(&server, PASSWORD));
    (server, world)
}

fn url(server: &RedisServer, password: &str) -> String {
    format!("redis://:{password}@{}", server.address())
}
