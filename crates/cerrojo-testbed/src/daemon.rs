//! The one process of a server, which may be away.

use std::{
    io,
    process::Command,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use crate::{Process, time::await_that};

/// How long it may take to start or to end.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(crate) struct Daemon(Mutex<Option<Process>>);

impl Daemon {
    /// Its process id, if it runs.
    pub(crate) fn id(&self) -> Option<u32> {
        self.process().as_ref().map(Process::id)
    }

    /// Starts it, and waits until it answers. An error of `answers` is no answer yet.
    pub(crate) fn start(
        &self,
        command: &mut Command,
        answers: impl Fn() -> io::Result<bool>,
    ) -> io::Result<()> {
        self.spawn(command)?;
        self.await_answer("an answer of a new server", answers).inspect_err(|_| drop(self.kill()))
    }

    /// Starts it, and waits for nothing.
    pub(crate) fn spawn(&self, command: &mut Command) -> io::Result<()> {
        *self.process() = Some(Process::spawn(command)?);
        Ok(())
    }

    /// Waits until it answers, while it runs.
    pub(crate) fn await_answer(
        &self,
        what: &str,
        answers: impl Fn() -> io::Result<bool>,
    ) -> io::Result<()> {
        await_that(what, LIMIT, || {
            if self.has_ended()? {
                return Ok(Some(Err(io::Error::other("the server ended"))));
            }
            Ok(answers()?.then_some(Ok(())))
        })?
    }

    fn has_ended(&self) -> io::Result<bool> {
        self.process().as_ref().map_or(Ok(true), |process| process.ends_within(Duration::ZERO))
    }

    /// Stops it with SIGSTOP; returns once it stands still.
    pub(crate) fn freeze(&self) -> io::Result<()> {
        self.process().as_ref().ok_or_else(not_running)?.freeze()
    }

    /// Lets it run on.
    pub(crate) fn thaw(&self) -> io::Result<()> {
        self.process().as_ref().ok_or_else(not_running)?.thaw()
    }

    /// Kills it with SIGKILL, also when it is frozen.
    pub(crate) fn kill(&self) -> io::Result<()> {
        self.process().take().map_or(Ok(()), |mut process| process.kill().map(drop))
    }

    /// Has it end as `ask` does, if it runs, and waits until it has.
    pub(crate) fn end(&self, ask: impl FnOnce(&Process) -> io::Result<()>) -> io::Result<()> {
        let Some(mut process) = self.process().take() else { return Ok(()) };
        process.thaw()?;
        ask(&process)?;
        process.wait(LIMIT).map(drop)
    }

    fn process(&self) -> MutexGuard<'_, Option<Process>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn not_running() -> io::Error {
    io::Error::other("the server does not run")
}
