//! The command line.

mod fence;
mod run;
mod scripts;
mod store;

use std::{ffi::OsString, time::Duration};

use cerrojo::{LockName, Ttl, spi::Wait};
use clap::{Parser, Subcommand};
use serde::{Deserialize, Serialize};

pub(crate) use self::fence::{AdmitArgs, AdoptArgs, FenceCommand, FenceShowArgs, WriteArgs};
pub(crate) use self::run::RunArgs;
pub(crate) use self::scripts::{AcquireArgs, CompletionsArgs, ManArgs, ReleaseArgs, RenewArgs};
pub(crate) use self::store::{InitArgs, StoreCommand};
use crate::exit;

/// Distributed locks that say what they promise.
#[derive(Debug, Parser)]
#[command(name = "cerrojo", version, after_help = exit::table(), max_term_width = 100)]
pub(crate) struct Args {
    /// Where the locks are: `local:` (this machine, default place), `local:FOLDER`,
    /// `postgres://USER@HOST/DATABASE`, or approximate ones at `redis://HOST:PORT` or
    /// `redlock://HOST:PORT,HOST:PORT,HOST:PORT`. With a password in it, better by CERROJO_STORE
    #[arg(long, global = true, env = "CERROJO_STORE", hide_env_values = true)]
    #[arg(value_name = "URL", default_value = "local:")]
    pub(crate) store: String,

    /// Answers and errors as JSON, one object per line
    #[arg(long, global = true)]
    pub(crate) json: bool,

    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(RunArgs),
    Acquire(AcquireArgs),
    Renew(RenewArgs),
    Release(ReleaseArgs),
    Ls(LsArgs),
    Show(ShowArgs),
    Break(BreakArgs),
    #[command(subcommand)]
    Fence(FenceCommand),
    #[command(subcommand)]
    Store(StoreCommand),
    /// Remove from the store what is no longer needed
    Prune,
    Completions(CompletionsArgs),
    Man(ManArgs),
}

/// How a lock is asked for: the same for every command that acquires.
#[derive(Debug, clap::Args, Deserialize, Serialize)]
pub(crate) struct Asking {
    /// Do not wait for the lock
    #[arg(short, long, conflicts_with = "wait")]
    pub(crate) nonblock: bool,

    /// Wait no longer than this for the lock [default: without end]
    #[arg(short, long, value_name = "DURATION", value_parser = duration)]
    pub(crate) wait: Option<Duration>,

    /// Exit with this code instead of 75 when someone else holds the lock
    #[arg(short = 'E', long, value_name = "CODE")]
    pub(crate) conflict_exit_code: Option<u8>,

    /// Refuse a store whose locks carry no fencing token
    #[arg(long)]
    pub(crate) fenced: bool,
}

/// List the locks that are held
#[derive(Debug, clap::Args)]
pub(crate) struct LsArgs {
    /// Only those whose names start so
    pub(crate) prefix: Option<LockName>,
}

/// Show who holds a lock; exits with 1 when nobody does
#[derive(Debug, clap::Args)]
pub(crate) struct ShowArgs {
    /// The lock
    pub(crate) name: LockName,
}

/// Take a lock from its holder; exits with 1 when nobody holds it
///
/// The holder can renew no more and reads "lost". The lock is free when the holder gives it back or its validity ends.
#[derive(Debug, clap::Args)]
pub(crate) struct BreakArgs {
    /// The lock
    pub(crate) name: LockName,

    /// Confirm that it is to be broken
    #[arg(long)]
    pub(crate) yes: bool,

    /// Free it at once, while the holder may still be at work: only a fence protects then
    #[arg(long)]
    pub(crate) now: bool,
}

impl Asking {
    /// Counted from now.
    pub(crate) fn waiting(&self) -> Wait {
        match self.wait {
            _ if self.nonblock => Wait::No,
            Some(wait) => wait.into(),
            None => Wait::Forever,
        }
    }
}

/// Whether a command line that cannot be parsed wants its error as JSON.
pub(crate) fn asks_for_json(mut words: impl Iterator<Item = OsString>) -> bool {
    words.by_ref().take_while(|word| word != "--").any(|word| word == "--json")
}

fn ttl(text: &str) -> Result<Ttl, String> {
    duration(text)?.try_into().map_err(|invalid: cerrojo::InvalidTtl| invalid.to_string())
}

/// Units from the longest suffix: `ms` before `s`.
const UNITS_MS: [(&str, u64); 5] =
    [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("", 1_000)];

fn duration(text: &str) -> Result<Duration, String> {
    let read = |(suffix, unit_ms): &(&str, u64)| {
        let digits = text.strip_suffix(suffix)?;
        let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        plain.then(|| digits.parse::<u64>().ok()?.checked_mul(*unit_ms)).flatten()
    };
    let millis = UNITS_MS.iter().find_map(read);
    millis.map(Duration::from_millis).ok_or_else(|| {
        "a duration is a whole number with ms, s, m or h, or plain seconds: 500ms, 10s, 5m, 2h, 30".to_owned()
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn durations_by_rule() {
        let good = [
            ("500ms", 500),
            ("10s", 10_000),
            ("5m", 300_000),
            ("2h", 7_200_000),
            ("7", 7_000),
            ("0", 0),
        ];
        for (text, millis) in good {
            assert_eq!(duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in [
            "",
            "s",
            "-1",
            "+1",
            "1.5s",
            "1 s",
            "1d",
            "ms",
            "5mm",
            "99999999999999999999",
            "18446744073709551615h",
        ] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_ttl_keeps_to_its_bounds() {
        assert!(ttl("9ms").is_err());
        assert!(ttl("25h").is_err());
        assert_eq!(ttl("10ms"), Ok(Ttl::MIN));
    }

    #[test]
    fn json_is_asked_for_before_the_command_only() {
        let asks = |line: &str| asks_for_json(line.split(' ').map(OsString::from));
        assert!(asks("cerrojo --json ls"));
        assert!(!asks("cerrojo run x -- jq --json"));
    }
}
