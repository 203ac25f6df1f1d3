//! How the program ends: its exit codes, and the failures that lead to them.

use std::{error::Error as StdError, fmt, io, path::Path};

use cerrojo::{ErrorKind, fence::FileError};
use rustix::process::Signal;

/// How the program ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Done.
    Success,
    /// The child's own code.
    Child(u8),
    /// The child, or the wait for the lock, was ended by a signal.
    Signal(i32),
    /// The lock that was asked about is free.
    Free,
    /// The command line is wrong.
    Usage,
    /// A file of a fence holds what no fence wrote.
    Damaged,
    /// The store is unusable.
    Store,
    /// The operating system is out of something.
    System,
    /// The token has been overtaken.
    Stale,
    /// Nobody can read our answer.
    Output,
    /// Someone else holds the lock.
    NotAcquired,
    /// The same, with a code that the user chose.
    NotAcquiredAs(u8),
    /// The token is of another store than those that a fence counts.
    OtherStore,
    /// The lease ended before the child did.
    LeaseLost,
    /// The command is there but does not run.
    NotExecutable,
    /// There is no such command.
    NotFound,
}

/// Every way to end that has a meaning of its own, by code: the rows of [`table`].
pub(crate) const ALL: &[Exit] = &[
    Exit::Success,
    Exit::Free,
    Exit::Usage,
    Exit::Damaged,
    Exit::Store,
    Exit::System,
    Exit::Stale,
    Exit::Output,
    Exit::NotAcquired,
    Exit::OtherStore,
    Exit::LeaseLost,
    Exit::NotExecutable,
    Exit::NotFound,
    Exit::Signal(0),
];

/// The exit codes, as `--help` and the man pages show them; docs/cli.md has the same rows.
pub(crate) fn table() -> String {
    let row = |exit: &Exit| format!("\n  {:<8} {}", exit.label(), exit.meaning());
    "Exit codes:".to_owned() + &ALL.iter().map(row).collect::<String>()
}

impl Exit {
    /// The code as the table shows it.
    pub(crate) fn label(self) -> String {
        match self {
            Self::Signal(_) => "128+N".to_owned(),
            _ => self.code().to_string(),
        }
    }

    pub(crate) fn meaning(self) -> &'static str {
        match self {
            Self::Success | Self::Child(_) => {
                "done (for `run`: the command's own code, whatever it is)"
            }
            Self::Signal(_) => "the command was ended by signal N, or signal N ended the wait",
            Self::Free => "`show`, `break`: the lock is free",
            Self::Usage => "usage error",
            Self::Damaged => "`fence`: a file of the fence is damaged, or is none",
            Self::Store => {
                "the store is invalid, unavailable or corrupt, or what it did is unknown"
            }
            Self::System => "the operating system refused what the program needs",
            Self::Stale => "`fence`: stale, a greater token has been admitted",
            Self::Output => "the output could not be written",
            Self::NotAcquired | Self::NotAcquiredAs(_) => {
                "not acquired: someone else holds the lock"
            }
            Self::OtherStore => "`fence`: the token is of another store than those before",
            Self::LeaseLost => {
                "the lease is not held any more; `run` has ended the command because of that"
            }
            Self::NotExecutable => "the command could not be executed",
            Self::NotFound => "the command was not found",
        }
    }

    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::Child(code) | Self::NotAcquiredAs(code) => code,
            Self::Signal(number) => u8::try_from(number.saturating_add(128)).unwrap_or(u8::MAX),
            Self::Free => 1,
            Self::Usage => 64,
            Self::Damaged => 65,
            Self::Store => 69,
            Self::System => 71,
            Self::Stale => 73,
            Self::Output => 74,
            Self::NotAcquired => 75,
            Self::OtherStore => 76,
            Self::LeaseLost => 79,
            Self::NotExecutable => 126,
            Self::NotFound => 127,
        }
    }
}

impl From<Signal> for Exit {
    fn from(signal: Signal) -> Self {
        Self::Signal(signal.as_raw())
    }
}

/// Why the program could not do what it was asked.
#[derive(Debug)]
pub(crate) struct Failure {
    exit: Exit,
    kind: &'static str,
    message: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl Failure {
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self { exit: Exit::Usage, kind: "usage", message: message.into(), source: None }
    }

    /// The operating system refused something that no lock and no store has to do with.
    pub(crate) fn system(what: &str, error: io::Error) -> Self {
        Self::of_io(Exit::System, "system", what.to_owned(), error)
    }

    pub(crate) fn output_to(path: &Path, error: io::Error) -> Self {
        let message = format!("{} could not be written", path.display());
        Self::of_io(Exit::Output, "output", message, error)
    }

    pub(crate) fn output(error: io::Error) -> Self {
        Self::of_io(Exit::Output, "output", "the output could not be written".to_owned(), error)
    }

    /// The child did not start.
    pub(crate) fn spawn(program: &std::ffi::OsStr, error: io::Error) -> Self {
        let (exit, kind) = match error.kind() {
            io::ErrorKind::NotFound => (Exit::NotFound, "not_found"),
            _ => (Exit::NotExecutable, "not_executable"),
        };
        let message = format!("cannot run `{}`", program.display());
        Self::of_io(exit, kind, message, error)
    }

    fn of_io(exit: Exit, kind: &'static str, message: String, error: io::Error) -> Self {
        Self { exit, kind, message, source: Some(Box::new(error)) }
    }

    /// The same failure with the exit code that the user chose for a lock that someone else holds.
    pub(crate) fn with_conflict_code(self, code: Option<u8>) -> Self {
        match (self.exit, code) {
            (Exit::NotAcquired, Some(code)) => Self { exit: Exit::NotAcquiredAs(code), ..self },
            _ => self,
        }
    }

    pub(crate) fn exit(&self) -> Exit {
        self.exit
    }

    /// One word that a program can compare.
    pub(crate) fn kind(&self) -> &'static str {
        self.kind
    }

    /// The error of the library, where it is one.
    pub(crate) fn store_error(&self) -> Option<&cerrojo::Error> {
        self.source.as_deref()?.downcast_ref()
    }
}

impl From<cerrojo::Error> for Failure {
    fn from(error: cerrojo::Error) -> Self {
        let exit = match error.kind() {
            ErrorKind::Contended => Exit::NotAcquired,
            ErrorKind::Lost => Exit::LeaseLost,
            // Names and TTLs were checked as arguments: what is invalid by now is the store's URL or place.
            _ => Exit::Store,
        };
        let (kind, message) = (error.kind().as_str(), error.to_string());
        Self { exit, kind, message, source: Some(Box::new(error)) }
    }
}

impl From<FileError> for Failure {
    fn from(error: FileError) -> Self {
        let (exit, kind) = match &error {
            FileError::Stale(_) => (Exit::Stale, "stale"),
            FileError::OtherStore { .. } => (Exit::OtherStore, "other_store"),
            FileError::Busy { .. } => (Exit::NotAcquired, "busy"),
            FileError::NotAFile { .. } => (Exit::Usage, "usage"),
            FileError::Damaged { .. } | FileError::NotAState { .. } => (Exit::Damaged, "damaged"),
            _ => (Exit::System, "system"),
        };
        let message = error.to_string();
        match error {
            FileError::Io { source, .. } => Self::of_io(exit, kind, message, source),
            _ => Self { exit, kind, message, source: None },
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl StdError for Failure {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self.store_error() {
            // Its message is ours already.
            Some(error) => error.source(),
            None => self.source.as_deref().map(|source| source as &(dyn StdError + 'static)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_by_code_and_has_each_once() {
        let codes: Vec<u8> = ALL.iter().map(|exit| exit.code()).collect();
        assert!(codes.is_sorted_by(|a, b| a < b), "{codes:?}");
    }

    #[test]
    fn the_reference_has_the_same_table() {
        let reference = include_str!("../../../docs/cli.md");
        let (_, after) = reference.split_once("## Exit codes\n").unwrap();
        let rows: Vec<&str> = after
            .lines()
            .skip_while(|line| !line.starts_with("|---"))
            .skip(1)
            .take_while(|line| line.starts_with('|'))
            .collect();
        let wanted: Vec<String> =
            ALL.iter().map(|exit| format!("| {} | {} |", exit.label(), exit.meaning())).collect();
        assert_eq!(rows, wanted);
    }

    #[test]
    fn signals_are_128_and_their_number() {
        assert_eq!(Exit::from(Signal::TERM).code(), 143);
        assert_eq!(Exit::Signal(i32::MAX).code(), 255);
    }

    #[test]
    fn kinds_of_errors_say_how_to_exit() {
        let cases = [
            (ErrorKind::Contended, Exit::NotAcquired),
            (ErrorKind::Lost, Exit::LeaseLost),
            (ErrorKind::Unavailable, Exit::Store),
            (ErrorKind::Indeterminate, Exit::Store),
            (ErrorKind::Invalid, Exit::Store),
            (ErrorKind::Corrupt, Exit::Store),
        ];
        for (kind, exit) in cases {
            assert_eq!(Failure::from(cerrojo::Error::new(kind, "why")).exit(), exit);
        }
    }
}
