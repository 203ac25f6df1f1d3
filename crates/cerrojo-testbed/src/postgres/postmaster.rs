//! The server's first process, and the processes that it makes: they are frozen and killed together.

use std::{
    collections::HashSet,
    fs, io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use rustix::{
    io::Errno,
    process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal},
};

use crate::{Process, process::ends_within, time::await_that};

/// How long the processes may take to stand still, or to be gone.
const LIMIT: Duration = Duration::from_secs(20);

#[derive(Debug)]
pub(super) struct Postmaster {
    process: Process,
    data: PathBuf,
}

impl Postmaster {
    /// `command` must become the server itself, not start it; `data` is its folder.
    pub(super) fn spawn(command: &mut Command, data: &Path) -> io::Result<Self> {
        Ok(Self { process: Process::spawn(command)?, data: data.to_owned() })
    }

    pub(super) fn id(&self) -> u32 {
        self.process.id()
    }

    pub(super) fn has_ended(&self) -> io::Result<bool> {
        self.process.ends_within(Duration::ZERO)
    }

    /// Whether it takes connections.
    pub(super) fn is_ready(&self) -> io::Result<bool> {
        Ok(self.status()?.get(7).is_some_and(|state| state == "ready"))
    }

    /// Stops all processes; returns once they stand still. The first goes first: then no more come.
    pub(super) fn freeze(&self) -> io::Result<()> {
        self.process.freeze()?;
        let mut frozen = HashSet::new();
        loop {
            let children = self.children()?.into_iter();
            let new: Vec<_> = children.filter(|pid| frozen.insert(*pid)).collect();
            if new.is_empty() {
                return Ok(());
            }
            new.into_iter().try_for_each(freeze)?;
        }
    }

    /// Lets all of them run on.
    pub(super) fn thaw(&self) -> io::Result<()> {
        self.children()?.into_iter().try_for_each(|pid| signal(pid, Signal::CONT))?;
        self.process.thaw()
    }

    /// Has it end in order, and waits until it has.
    pub(super) fn end(&mut self, by: Signal) -> io::Result<()> {
        self.thaw()?;
        self.process.signal(by)?;
        self.process.wait(LIMIT).map(drop)
    }

    /// Kills all processes with SIGKILL, and waits until they are gone.
    pub(super) fn kill(&mut self) -> io::Result<()> {
        if self.process.freeze().is_err() {
            // It has ended, and so have those that it made.
            return self.process.kill().map(drop);
        }
        // One that stands still reaps nobody: so no number of a child is given to a stranger meanwhile.
        let children = self.children()?.into_iter();
        let children: Vec<_> = children.map(open).collect::<Result<_, _>>()?;
        children.iter().try_for_each(|child| pidfd_send_signal(child, Signal::KILL))?;
        self.process.kill()?;
        children.iter().try_for_each(await_end)?;
        self.remove_shared_memory()
    }

    /// What a killed server leaves in the kernel. The next start would remove it, but there may be none.
    fn remove_shared_memory(&self) -> io::Result<()> {
        let lines = self.status()?;
        let Some(segment) = lines.get(6).and_then(|line| line.split_whitespace().nth(1)) else {
            return Ok(());
        };
        Command::new("ipcrm").args(["--shmem-id", segment]).status().map(drop)
    }

    /// The lines of its lock file, of which the first is its id: until it writes them there are none, or those of
    /// one before it.
    fn status(&self) -> io::Result<Vec<String>> {
        let text = fs::read_to_string(self.data.join("postmaster.pid"))?;
        let lines: Vec<_> = text.lines().map(|line| line.trim().to_owned()).collect();
        Ok(if lines.first() == Some(&self.id().to_string()) { lines } else { Vec::new() })
    }

    fn children(&self) -> io::Result<Vec<Pid>> {
        let parent = self.id().to_string();
        let all =
            fs::read_dir("/proc")?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let pids = all.filter_map(|name| name.parse().ok()).filter_map(Pid::from_raw);
        Ok(pids.filter(|pid| stat(*pid).is_some_and(|(_, of)| of == parent)).collect())
    }
}

impl Drop for Postmaster {
    fn drop(&mut self) {
        // An error has nobody to go to.
        drop(self.kill());
    }
}

fn freeze(pid: Pid) -> io::Result<()> {
    signal(pid, Signal::STOP)?;
    await_that("a process that stands still", LIMIT, || Ok(is_still(pid).then_some(())))
}

/// A process that has ended meanwhile needs no signal.
fn signal(pid: Pid, signal: Signal) -> io::Result<()> {
    match open(pid).and_then(|process| pidfd_send_signal(process, signal)) {
        Err(Errno::SRCH) => Ok(()),
        sent => Ok(sent?),
    }
}

fn open(pid: Pid) -> Result<OwnedFd, Errno> {
    pidfd_open(pid, PidfdFlags::empty())
}

fn await_end(process: &OwnedFd) -> io::Result<()> {
    let late = || io::Error::new(io::ErrorKind::TimedOut, "a killed backend does not go");
    ends_within(process, LIMIT)?.then_some(()).ok_or_else(late)
}

/// Stopped or ended.
fn is_still(pid: Pid) -> bool {
    stat(pid).is_none_or(|(state, _)| matches!(state.as_str(), "T" | "Z" | "X"))
}

/// Its state, and its parent's id.
fn stat(pid: Pid) -> Option<(String, String)> {
    let line = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = line.rsplit_once(") ")?.1.split(' ');
    Some((fields.next()?.to_owned(), fields.next()?.to_owned()))
}
