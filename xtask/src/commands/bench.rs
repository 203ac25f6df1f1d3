//! `cargo xtask bench`

use crate::{Outcome, peers, process};

/// Builds the comparisons for speed and runs them. Peers that cannot be installed or built are left out.
pub(crate) fn run(args: &[String]) -> Outcome {
    if let Err(why) = peers::install() {
        println!("without the peers of other languages: {why}");
    }
    if let Err(why) = peers::build() {
        println!("without distributed-lock: {why}");
    }
    process::run(process::cargo("run --release -p cerrojo-bench --").args(args))
}
