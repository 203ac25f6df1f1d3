//! `cargo xtask test`

use crate::{Outcome, needs, peers, process};

/// Installs what the tests need and runs them all, doctests and examples included.
///
/// With `CERROJO_TEST_REQUIRE` a test that would be left out for want of a program or a right fails instead.
pub(crate) fn run(args: &[String]) -> Outcome {
    needs::install()?;
    peers::install()?;
    let mut command = process::cargo("test --workspace --all-features --no-fail-fast");
    process::run(command.args(args).env("CERROJO_TEST_REQUIRE", "1"))
}
