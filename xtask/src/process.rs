//! Running other programs, at the root of the repository.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::Outcome;

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}

/// A cargo command, the words separated by blanks.
pub(crate) fn cargo(words: &str) -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(words.split_whitespace()).current_dir(root());
    command
}

/// Runs a command, its output going where ours goes.
pub(crate) fn run(command: &mut Command) -> Outcome {
    println!("$ {}", spelled(command));
    let status = command.status().map_err(|e| failed(command, &e))?;
    if status.success() { Ok(()) } else { Err(failed(command, &status)) }
}

/// Runs a command and answers what it printed; its errors go where ours go.
pub(crate) fn output(command: &mut Command) -> Result<String, String> {
    println!("$ {}", spelled(command));
    let output = command.stderr(Stdio::inherit()).output().map_err(|e| failed(command, &e))?;
    if !output.status.success() {
        return Err(failed(command, &output.status));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn failed(command: &Command, why: &dyn std::fmt::Display) -> String {
    format!("`{}`: {why}", spelled(command))
}

/// The command as one would type it.
pub(crate) fn spelled(command: &Command) -> String {
    let settings = command.get_envs().filter_map(|(name, value)| {
        Some(format!("{}={}", name.to_string_lossy(), quoted(&value?.to_string_lossy())))
    });
    let program = Path::new(command.get_program()).file_name().unwrap_or_default();
    let args = command.get_args().map(|arg| quoted(&arg.to_string_lossy()));
    let words = settings.chain([program.to_string_lossy().into_owned()]).chain(args);
    words.collect::<Vec<_>>().join(" ")
}

fn quoted(word: &str) -> String {
    if word.contains(' ') { format!("\"{word}\"") } else { word.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_spelled_as_one_would_type_it() {
        let mut command = Command::new("/usr/bin/cargo");
        command.args(["doc", "a b"]).env("RUSTDOCFLAGS", "-D warnings");
        assert_eq!(spelled(&command), "RUSTDOCFLAGS=\"-D warnings\" cargo doc \"a b\"");
    }

    #[test]
    fn a_failing_program_is_an_error_that_names_it() {
        let error = run(Command::new("sh").args(["-c", "exit 3"])).unwrap_err();
        assert!(error.contains("exit 3") && error.contains("status: 3"), "{error}");
        assert!(output(&mut Command::new("no-such-program")).is_err());
    }
}
