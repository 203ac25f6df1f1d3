//! The chores of this repository, as `cargo xtask COMMAND`.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for people at a terminal")]

mod commands {
    pub(crate) mod bench;
    pub(crate) mod ci;
    pub(crate) mod long;
    pub(crate) mod test;
}
mod needs;
mod peers;
mod process;
mod readme;
mod steps;

use std::process::ExitCode;

/// What a chore answers: nothing, or why it failed.
type Outcome = Result<(), String>;

/// One command: its name, what it takes, what it does, and the code that does it.
struct Command {
    name: &'static str,
    takes: &'static str,
    does: &'static str,
    run: fn(&[String]) -> Outcome,
}

const COMMANDS: &[Command] = &[
    Command {
        name: "test",
        takes: "[ARGS of cargo test]",
        does: "installs what the tests need, then runs them all; none may be left out",
        run: commands::test::run,
    },
    Command {
        name: "ci",
        takes: "",
        does: "runs every gate, up to the first that fails",
        run: commands::ci::run,
    },
    Command {
        name: "long",
        takes: "[ARGS of the tests]",
        does: "runs the long forms of races, kills and power losses",
        run: commands::long::run,
    },
    Command {
        name: "bench",
        takes: "[ARGS of cerrojo-bench]",
        does: "runs the comparisons and prints their figures",
        run: commands::bench::run,
    },
];

/// The exit code for a command line that makes no sense.
const USAGE: u8 = 64;

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let name = args.next().unwrap_or_default();
    let Some(command) = find(&name) else {
        eprint!("{}", usage());
        return ExitCode::from(USAGE);
    };
    match (command.run)(&args.collect::<Vec<_>>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("cargo xtask {name}: {why}");
            ExitCode::FAILURE
        }
    }
}

fn find(name: &str) -> Option<&'static Command> {
    COMMANDS.iter().find(|command| command.name == name)
}

fn usage() -> String {
    let lines = COMMANDS.iter().map(|Command { name, takes, does, .. }| {
        let call = format!("{name} {takes}");
        format!("  {call:<30} {does}\n")
    });
    format!("usage: cargo xtask COMMAND\n\n{}", lines.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_names_every_command() {
        let usage = usage();
        for command in COMMANDS {
            assert!(usage.contains(&format!("  {} ", command.name)), "{usage}");
        }
    }

    #[test]
    fn an_unknown_command_is_not_found() {
        assert!(find("test").is_some());
        assert!(find("tests").is_none() && find("").is_none());
    }
}
