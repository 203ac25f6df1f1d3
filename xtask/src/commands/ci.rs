//! `cargo xtask ci`

use crate::{
    Outcome,
    process::{cargo, run as run_command},
    readme,
    steps::Steps,
};

const DENY_WARNINGS: &str = "-- -D warnings";

/// Every gate, the quick ones first.
pub(crate) fn run(_: &[String]) -> Outcome {
    Steps::default()
        .step("formatting", || run_command(&mut cargo("fmt --all --check")))
        .step("README names the commands below", readme::names_the_commands)
        .step("clippy, all features", || clippy("--workspace --all-features"))
        .step("clippy, no feature", || clippy("-p cerrojo --no-default-features"))
        .step("clippy, feature local", || clippy_with("local"))
        .step("clippy, feature postgres", || clippy_with("postgres"))
        .step("clippy, feature redis", || clippy_with("redis"))
        .step("clippy, feature conformance", || clippy_with("conformance"))
        .step("documentation", documentation)
        .step("examples", || run_command(&mut cargo("build --workspace --examples --all-features")))
        .step("README: cargo xtask test", || run_command(&mut cargo("xtask test")))
        .step("README: the first command", readme::first_command_runs)
        .finish()
}

fn clippy_with(feature: &str) -> Outcome {
    clippy(&format!("-p cerrojo --no-default-features --features {feature}"))
}

fn clippy(what: &str) -> Outcome {
    run_command(&mut cargo(&format!("clippy --all-targets {what} {DENY_WARNINGS}")))
}

fn documentation() -> Outcome {
    let mut doc = cargo("doc --workspace --no-deps --all-features");
    run_command(doc.env("RUSTDOCFLAGS", "-D warnings"))
}
