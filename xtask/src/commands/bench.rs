//! `cargo xtask bench`

use crate::{Outcome, process};

/// Builds the comparisons for speed and runs them.
pub(crate) fn run(args: &[String]) -> Outcome {
    process::run(process::cargo("run --release -p cerrojo-bench --").args(args))
}
