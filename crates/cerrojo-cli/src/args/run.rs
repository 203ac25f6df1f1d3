//! What `cerrojo run` is asked to do.

use std::{ffi::OsString, time::Duration};

use cerrojo::{LockName, Ttl};

use super::{Asking, duration, ttl};
use crate::{
    exit::{self, Failure},
    guardian::OnLost,
};

/// The longest grace unless asked for.
const GRACE_MAX: Duration = Duration::from_secs(5);

/// Run a command while holding a lock
///
/// Waits for the lock, runs the command with CERROJO_LOCK, CERROJO_TOKEN and CERROJO_STORE_ID in its environment,
/// renews the lock until the command ends, and exits with the command's code. Without a command it holds the lock
/// until INT, TERM, HUP or QUIT comes, and then exits with 0.
///
/// When the lease is lost, or the store cannot be reached for so long that it soon will be, the command and all that
/// it has started are ended (TERM, then KILL) before anyone else can have the lock. A second process, the guardian, sees
/// to that, also when this one is killed or stopped.
#[derive(Debug, clap::Args)]
#[command(after_help = exit::table())]
pub(crate) struct RunArgs {
    /// The lock
    pub(crate) name: LockName,

    /// How long the lock outlives this program when it crashes: 10ms to 24h, as 500ms, 30s, 5m, 2h or seconds
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = ttl)]
    pub(crate) ttl: Ttl,

    #[command(flatten)]
    pub(crate) asking: Asking,

    /// What becomes of the command when the lease is lost, or soon will be
    #[arg(long, value_name = "WHAT", value_enum, default_value = "term")]
    pub(crate) on_lost: OnLost,

    /// From TERM to KILL; no more than a third of the TTL [default: a quarter of the TTL, but no more than 5s]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    grace: Option<Duration>,

    /// Run this by /bin/sh
    #[arg(short = 'c', value_name = "STRING", conflicts_with = "command")]
    shell: Option<OsString>,

    /// What to run, after `--`
    #[arg(last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

impl RunArgs {
    /// What the parts alone do not tell.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        let most = self.ttl.get() / 3;
        if self.grace() <= most {
            return Ok(());
        }
        Err(Failure::usage(format!(
            "--grace is {:?}, which is more than a third of the TTL ({most:?}): a command would be ended that is well renewed",
            self.grace()
        )))
    }

    pub(crate) fn grace(&self) -> Duration {
        self.grace.unwrap_or_else(|| GRACE_MAX.min(self.ttl.get() / 4))
    }

    /// What to run; none: nothing but to hold the lock.
    pub(crate) fn words(&self) -> Option<Vec<OsString>> {
        match &self.shell {
            Some(line) => Some(vec!["/bin/sh".into(), "-c".into(), line.clone()]),
            None => Some(self.command.clone()).filter(|words| !words.is_empty()),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Args, Command};

    fn parse(line: &str) -> RunArgs {
        let args = Args::try_parse_from(line.split(' ')).unwrap();
        let Command::Run(run) = args.command else { panic!("{line}") };
        run
    }

    #[test]
    fn the_grace_is_a_quarter_of_the_ttl_but_no_more_than_5_s() {
        for (ttl, grace_ms) in [("10s", 2_500), ("20s", 5_000), ("1h", 5_000)] {
            let run = parse(&format!("cerrojo run x --ttl {ttl}"));
            assert_eq!(run.grace(), Duration::from_millis(grace_ms));
        }
    }

    #[test]
    fn a_grace_is_at_most_a_third_of_the_ttl() {
        assert!(parse("cerrojo run x --ttl 30s --grace 10s").check().is_ok());
        assert!(parse("cerrojo run x --ttl 30s --grace 0").check().is_ok());
        assert!(parse("cerrojo run x --ttl 30s --grace 10001ms").check().is_err());
        assert!(parse("cerrojo run x --ttl 10ms").check().is_ok());
    }

    #[test]
    fn a_string_is_run_by_a_shell_and_nothing_is_nothing() {
        assert_eq!(parse("cerrojo run x -c true").words().unwrap(), ["/bin/sh", "-c", "true"]);
        assert_eq!(parse("cerrojo run x -- a b").words().unwrap(), ["a", "b"]);
        assert_eq!(parse("cerrojo run x").words(), None);
    }
}
