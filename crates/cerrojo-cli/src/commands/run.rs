//! `cerrojo run`: a command under a lock.

mod hold;
mod runner;

use std::{
    ffi::OsString, io, os::unix::process::ExitStatusExt, process::ExitStatus, time::Duration,
};

use cerrojo::{AnyLocker, Error, ErrorKind, LockName, Result};

use self::runner::{Ended, Runner};
use crate::{
    args::RunArgs,
    exit::{Exit, Failure},
    guardian::{Go, Guarded, Lease},
    held::{Held, Wanted},
    output::Output,
    signals::{Children, Signals},
    store,
    waiting::{Waited, unless_interrupted, with_display},
};

/// What was asked for.
struct Run<'a> {
    args: &'a RunArgs,
    words: &'a [OsString],
    store: &'a str,
    output: Output,
}

pub(crate) async fn run(args: RunArgs, store: &str, output: Output) -> Result<Exit, Failure> {
    args.check()?;
    let outcome = match args.words() {
        Some(words) => Run { args: &args, words: &words, store, output }.guarded().await,
        None => hold::run(&args, store, output).await,
    };
    outcome.map_err(|failure| failure.with_conflict_code(args.asking.conflict_exit_code))
}

impl Run<'_> {
    async fn guarded(&self) -> Result<Exit, Failure> {
        let mut children = Children::watch()?;
        let signals = Signals::catch()?;
        let guarded = Guarded::start(&self.args.name, self.words)?;
        let outcome = self.beside(&guarded, signals, &mut children).await;
        guarded.leave(&mut children).await;
        outcome
    }

    /// The guardian starts while the store is opened: both are needed before the lock can be asked for.
    async fn beside(
        &self,
        guarded: &Guarded,
        mut signals: Signals,
        children: &mut Children,
    ) -> Result<Exit, Failure> {
        let store = store::connect_to_ask(self.store, &self.args.asking);
        let both = async { tokio::try_join!(store, guarded.stands()) };
        let (store, group) = match unless_interrupted(&mut signals, both).await {
            Waited::Ready(both) => both?,
            Waited::Interrupted(signal) => return Ok(signal.into()),
        };
        let mut runner = Runner::new(guarded, group, signals, children);
        let outcome = self.under_lock(&store, &mut runner).await;
        store::close(&store, self.output).await;
        outcome
    }

    async fn under_lock(
        &self,
        store: &AnyLocker,
        runner: &mut Runner<'_>,
    ) -> Result<Exit, Failure> {
        let Run { args, output, .. } = self;
        let RunArgs { name, ttl, asking, .. } = args;
        let wanted = Wanted { name, ttl: *ttl, asking, bound_to: runner.bound_to() };
        // When a signal comes first, dropping the acquisition makes it leave the store's queue.
        let acquire = with_display(store, name, *output, Held::acquire(store, wanted));
        let held = match runner.meanwhile(acquire).await? {
            Waited::Ready(held) => held?,
            Waited::Interrupted(signal) => return Ok(signal.into()),
        };
        let ended = self.run_command(&held, runner).await;
        // The command is gone by now, so the next holder may come.
        let released = held.release().await;
        self.conclude(ended, released)
    }

    async fn run_command(&self, held: &Held, runner: &mut Runner<'_>) -> Result<Ended, Failure> {
        let signal = held.signal();
        let valid_until = signal.valid_until().ok_or_else(|| lost_at_once(&self.args.name))?;
        let nanos = |length: Duration| u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
        let lease = Lease {
            store: self.store.to_owned(),
            name: self.args.name.to_string(),
            owner: *held.grant().owner().as_bytes(),
            valid_until_ns: valid_until.as_nanos(),
            ttl_ns: nanos(self.args.ttl.get()),
            grace_ns: nanos(self.args.grace()),
            on_lost: self.args.on_lost,
        };
        runner.go(lease, &self.environment(held))?;
        Ok(runner.until_gone(&signal, valid_until).await)
    }

    /// The store's URL may hold a password, which is none of the command's business. What an outer `cerrojo run` has set
    /// is not about this lock.
    fn environment(&self, held: &Held) -> Go {
        let grant = held.grant();
        let set = [
            ("CERROJO_LOCK", Some(self.args.name.to_string())),
            ("CERROJO_TOKEN", grant.token().map(str::to_owned)),
            ("CERROJO_STORE_ID", grant.store_id().map(str::to_owned)),
            ("CERROJO_STORE", None),
        ];
        Go { environment: set.map(|(name, value)| (name.to_owned(), value)).into() }
    }

    /// A loss is the outcome, whatever the command said; an unknown release is worth a warning.
    fn conclude(
        &self,
        ended: Result<Ended, Failure>,
        released: Result<()>,
    ) -> Result<Exit, Failure> {
        let name = &self.args.name;
        let lost = match released {
            Err(error) if error.kind() == ErrorKind::Lost => Some(error),
            Err(error) => {
                self.output.warning(&error);
                None
            }
            Ok(()) => None,
        };
        match (ended?, lost) {
            (Ended::ByUs, _) => Err(ended_early(name)),
            (Ended::ByItself(_), Some(error)) => Err(lost_unnoticed(name, error)),
            (Ended::ByItself(status), None) => Ok(exit_of(status)),
            (Ended::NotRun(error), _) => Err(self.not_run(error)),
            (Ended::WithItsGuardian, Some(_)) => Err(ended_early(name)),
            (Ended::WithItsGuardian, None) => Err(ended_with_its_guardian()),
        }
    }

    fn not_run(&self, error: io::Error) -> Failure {
        let program = self.words.first().cloned().unwrap_or_default();
        Failure::spawn(&program, error)
    }
}

/// The exit code that passes a command's end on.
fn exit_of(status: ExitStatus) -> Exit {
    match (status.code(), status.signal()) {
        (Some(code), _) => Exit::Child(u8::try_from(code & 0xFF).unwrap_or(u8::MAX)),
        (None, Some(signal)) => Exit::Signal(signal),
        (None, None) => Exit::Child(u8::MAX),
    }
}

fn lost(message: String) -> Error {
    Error::new(ErrorKind::Lost, message)
}

fn lost_at_once(name: &LockName) -> Failure {
    lost(format!("the lease of `{name}` was lost before the command could start")).into()
}

fn ended_early(name: &LockName) -> Failure {
    lost(format!("the lease of `{name}` could not be kept, so the command was ended")).into()
}

fn lost_unnoticed(name: &LockName, error: Error) -> Failure {
    let message = format!(
        "the lease of `{name}` was lost before the command ended: someone else may have been at work beside it"
    );
    lost(message).with_source(error).into()
}

fn ended_with_its_guardian() -> Failure {
    Failure::system("the command was ended", io::Error::other("its guardian is gone"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_passed_on_as_a_shell_would() {
        assert_eq!(exit_of(ExitStatus::from_raw(7 << 8)), Exit::Child(7));
        assert_eq!(exit_of(ExitStatus::from_raw(255 << 8)), Exit::Child(255));
        assert_eq!(exit_of(ExitStatus::from_raw(9)), Exit::Signal(9));
    }
}
