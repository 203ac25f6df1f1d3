//! The real binary on real stores, each in a folder of its own.
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

mod child;
mod exit_codes;
mod fence;
mod inspect;
mod kept;
mod loss;
mod run;
mod scripts;
mod signals;
mod snapshots;
mod terminal;
#[allow(dead_code, reason = "each test target uses a part")]
mod world;
