//! The process that a lock is kept for, by a pidfd: its id may be another one's by tomorrow, the descriptor stays with it.

use std::{io, os::fd::OwnedFd};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    process::{Pid, PidfdFlags, pidfd_open},
};
use tokio::sync;

use crate::exit::Failure;

/// A running process.
pub(super) fn open(pid: i32) -> Result<OwnedFd, Failure> {
    let id = Pid::from_raw(pid).ok_or_else(|| gone(pid))?;
    let pidfd = pidfd_open(id, PidfdFlags::NONBLOCK).map_err(|error| match error {
        // Invalid and not found are what the id of a thread gets.
        Errno::SRCH | Errno::INVAL | Errno::NOENT => gone(pid),
        _ => unwatchable(error.into()),
    })?;
    if has_ended(&pidfd).map_err(unwatchable)? { Err(gone(pid)) } else { Ok(pidfd) }
}

/// Also while it is a zombie.
fn has_ended(pidfd: &OwnedFd) -> io::Result<bool> {
    let mut fds = [PollFd::new(pidfd, PollFlags::IN)];
    Ok(poll(&mut fds, Some(&Timespec::default()))? > 0)
}

pub(super) fn gone(pid: i32) -> Failure {
    Failure::usage(format!("process {pid} of --pid does not run: nothing was acquired"))
}

fn unwatchable(error: io::Error) -> Failure {
    Failure::system("cannot watch the process of --pid", error)
}

/// A process whose end can be waited for. A thread does the waiting and goes with it.
pub(super) struct Watch(sync::watch::Receiver<()>);

impl Watch {
    pub(super) fn new(pidfd: OwnedFd) -> io::Result<Self> {
        let (alive, watch) = sync::watch::channel(());
        std::thread::Builder::new().name("watch".to_owned()).spawn(move || {
            let _alive = alive;
            while poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], None) == Err(Errno::INTR) {}
        })?;
        Ok(Self(watch))
    }

    /// Ready when the process has ended. May be dropped and called again.
    pub(super) async fn ended(&mut self) {
        while self.0.changed().await.is_ok() {}
    }
}
