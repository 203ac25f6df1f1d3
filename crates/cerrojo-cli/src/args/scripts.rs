//! What scripts call: a lock in steps, and the pages made from this very command line.

use std::{convert::Infallible, fmt, io::BufRead, path::PathBuf, str::FromStr};

use cerrojo::{LockName, OwnerId, Ttl};

use super::{Asking, ttl};
use crate::exit::{self, Failure};

/// More than any owner id: what is longer is none, and is not read to its end.
const OWNER_LINE_MAX_BYTES: usize = 64;

/// Acquire a lock and leave it standing, for scripts
///
/// Prints one JSON object, whose `owner` is what `cerrojo renew` and `cerrojo release` need. Nothing renews the
/// lock: it ends by its TTL unless it is renewed or released.
///
/// With --pid the lock is kept instead: a process in the background renews it until that process has ended,
/// and then releases it.
#[derive(Debug, clap::Args)]
#[command(after_help = exit::table())]
pub(crate) struct AcquireArgs {
    /// The lock
    pub(crate) name: LockName,

    /// How long the lock stands unless renewed: 10ms to 24h, as 500ms, 30s, 5m, 2h or seconds
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = ttl)]
    pub(crate) ttl: Ttl,

    #[command(flatten)]
    pub(crate) asking: Asking,

    /// Keep the lock until this process has ended, as in --pid $$
    #[arg(long, value_parser = clap::value_parser!(i32).range(1..))]
    pub(crate) pid: Option<i32>,
}

/// Renew a lock that `acquire` left standing; exits with 79 when it is not held any more
///
/// Prints the same JSON object as `cerrojo acquire`.
#[derive(Debug, clap::Args)]
#[command(after_help = exit::table())]
pub(crate) struct RenewArgs {
    /// The lock
    pub(crate) name: LockName,

    #[command(flatten)]
    pub(crate) owner: OwnerArg,

    /// How long the lock stands from now on, unless renewed again
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = ttl)]
    pub(crate) ttl: Ttl,
}

/// Release a lock that `acquire` left standing; exits with 79 when it was not held any more
#[derive(Debug, clap::Args)]
#[command(after_help = exit::table())]
pub(crate) struct ReleaseArgs {
    /// The lock
    pub(crate) name: LockName,

    #[command(flatten)]
    pub(crate) owner: OwnerArg,
}

/// Whose lock it is.
#[derive(Debug, clap::Args)]
pub(crate) struct OwnerArg {
    /// The owner id that `acquire` printed, or `-` to read it from stdin
    ///
    /// Whoever knows it can renew and release, and other users can read a command line in the process list: the
    /// environment or stdin is the place for it.
    #[arg(long, env = "CERROJO_OWNER", hide_env_values = true)]
    owner: Secret,
}

impl OwnerArg {
    /// The owner id, from stdin when it is to be read there.
    pub(crate) fn read(&self) -> Result<OwnerId, Failure> {
        match self.owner.0.as_str() {
            "-" => Secret(first_line(std::io::stdin().lock())?).owner(),
            _ => self.owner.owner(),
        }
    }
}

/// A text that is never shown: an owner id, unless it is mistyped.
#[derive(Clone)]
struct Secret(String);

impl Secret {
    /// The message does not repeat what was given: all but one digit of it may be right.
    fn owner(&self) -> Result<OwnerId, Failure> {
        let invalid = |error| Failure::usage(format!("--owner or CERROJO_OWNER: {error}"));
        self.0.trim().parse().map_err(|error: cerrojo::InvalidId| invalid(error))
    }
}

/// Any text will do here: what clap refuses it would repeat.
impl FromStr for Secret {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

fn first_line(input: impl BufRead) -> Result<String, Failure> {
    let mut line = String::new();
    let limit = u64::try_from(OWNER_LINE_MAX_BYTES).unwrap_or(u64::MAX);
    let read = input.take(limit).read_line(&mut line);
    read.map(|_| line).map_err(|error| Failure::system("cannot read stdin", error))
}

/// Print a completion script for a shell
///
/// For bash: source <(cerrojo completions bash)
#[derive(Debug, clap::Args)]
pub(crate) struct CompletionsArgs {
    /// Which shell
    pub(crate) shell: clap_complete::Shell,
}

/// Print the man page, or write one for each command
#[derive(Debug, clap::Args)]
pub(crate) struct ManArgs {
    /// Write the pages of all commands into this folder, which has to exist
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: &str = "000102030405060708090a0b0c0d0e0f";

    #[test]
    fn an_owner_is_read_from_the_first_line() {
        for text in [OWNER.to_owned(), format!("{OWNER}\n"), format!("{OWNER}\r\nmore")] {
            let line = first_line(text.as_bytes()).unwrap();
            assert_eq!(Secret(line).owner().unwrap().to_hex(), OWNER, "{text:?}");
        }
    }

    #[test]
    fn a_mistyped_owner_is_not_repeated() {
        for text in ["", "-", &OWNER[1..], &OWNER.replace('0', "x"), &OWNER.repeat(99)] {
            let line = first_line(text.as_bytes()).unwrap();
            assert!(line.len() <= OWNER_LINE_MAX_BYTES);
            let error = Secret(line).owner().unwrap_err();
            assert_eq!(
                error.to_string(),
                "--owner or CERROJO_OWNER: an id is 32 hexadecimal digits"
            );
        }
    }

    #[test]
    fn an_owner_is_not_in_debug() {
        assert_eq!(format!("{:?}", Secret(OWNER.to_owned())), "Secret(..)");
    }
}
