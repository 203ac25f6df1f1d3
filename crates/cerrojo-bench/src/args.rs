//! The command line.

use std::path::{Path, PathBuf};

use clap::{Parser, Subcommand};

use crate::fleet_turns;

/// Measures Cerrojo beside other systems, in interleaved rounds of one run.
#[derive(Debug, Parser)]
#[command(version, args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    /// Ask only these questions; a part of a name stands for all that have it.
    #[arg(value_name = "QUESTION")]
    pub(crate) only: Vec<String>,
    /// How often each contestant is measured; each question has its own default.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rounds: Option<u32>,
    /// Short rounds: to see that it works, not to quote.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Contestants only whose name contains this, and the baseline.
    #[arg(long, value_name = "TEXT")]
    pub(crate) contestants: Option<String>,
    /// The contestant that the others are compared with, where a question has it.
    #[arg(long, value_name = "CONTESTANT")]
    pub(crate) baseline: Option<String>,
    /// Writes everything measured to a file.
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Where files and stores are made, in a folder that is removed afterwards. Default: the system's, where servers are
    /// always (`TMPDIR`).
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    /// The `cerrojo` binary. Default: the one beside this program.
    #[arg(long, value_name = "PATH")]
    pub(crate) cerrojo: Option<PathBuf>,
    /// What a process that this program started does.
    #[command(subcommand)]
    pub(crate) role: Option<Role>,
}

/// The parts that processes of our own play.
#[derive(Debug, Subcommand)]
pub(crate) enum Role {
    /// Takes turns until standard input ends, and prints each hold.
    #[command(hide = true)]
    TakeTurns(Contest),
    /// Waits in vain until standard input ends.
    #[command(hide = true)]
    Wait(Contest),
    /// Holds many locks and prints what memory they take.
    #[command(hide = true)]
    HoldMany {
        /// The store's URL.
        url: String,
        /// How many locks.
        count: u32,
    },
    /// Takes turns on a lock, as [`cerrojo_bench::fleet`] wants it.
    #[command(hide = true)]
    FleetTurns(fleet_turns::Job),
    /// Adds one to the number in a file without any care.
    #[command(hide = true)]
    AddOne {
        /// The file with the number.
        count: PathBuf,
        /// The file to which the fencing token is appended.
        tokens: PathBuf,
    },
}

/// What a process waits for.
#[derive(Debug, clap::Args)]
pub(crate) struct Contest {
    /// A store's URL, or `flock:` and a file.
    pub(crate) place: String,
}

impl Args {
    pub(crate) fn folder(&self) -> PathBuf {
        self.folder.clone().unwrap_or_else(std::env::temp_dir)
    }

    /// A folder that is removed when the answer is dropped.
    pub(crate) fn fresh_folder(&self) -> crate::Result<tempfile::TempDir> {
        Ok(tempfile::Builder::new().prefix("cerrojo-bench-").tempdir_in(self.folder())?)
    }

    /// The `cerrojo` binary, if it is there.
    pub(crate) fn cerrojo(&self) -> crate::Result<PathBuf> {
        let path = match &self.cerrojo {
            Some(path) => path.clone(),
            None => std::env::current_exe()?.with_file_name("cerrojo"),
        };
        is_there(&path)?;
        Ok(path)
    }
}

fn is_there(path: &Path) -> crate::Result<()> {
    if path.is_file() {
        return Ok(());
    }
    let path = path.display();
    Err(format!("no `cerrojo` at {path}: build it in the same profile, or say --cerrojo PATH")
        .into())
}
