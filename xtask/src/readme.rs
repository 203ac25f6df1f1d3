//! The commands that the README promises to work on a fresh machine.

use std::fs;

use crate::{Outcome, process};

/// Runs the main job on the embedded store.
pub(crate) const RUN: &str =
    r#"cargo run --release -p cerrojo-cli -- run nightly-report -- echo "the lock is mine""#;
/// Installs what the tests need and passes them all.
pub(crate) const TEST: &str = "cargo xtask test";

/// The README says the commands that the gates run.
pub(crate) fn names_the_commands() -> Outcome {
    let path = process::root().join("README.md");
    let readme = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let unsaid = [RUN, TEST].into_iter().find(|command| !readme.contains(command));
    unsaid.map_or(Ok(()), |command| Err(format!("the README does not say `{command}`")))
}

/// The first command runs, on a store of its own that is removed afterwards.
pub(crate) fn first_command_runs() -> Outcome {
    let folder = std::env::temp_dir().join(format!("cerrojo-ci-{}", std::process::id()));
    let mut command = process::cargo("run --release -p cerrojo-cli --");
    command.arg("--store").arg(format!("local:{}", folder.display()));
    command.args(["run", "nightly-report", "--", "echo", "the lock is mine"]);
    let printed = process::output(&mut command);
    let removed = fs::remove_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()));
    match printed?.as_str() {
        "the lock is mine\n" => removed,
        other => Err(format!("it printed {other:?}")),
    }
}
