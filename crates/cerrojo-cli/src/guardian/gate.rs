//! Waits until the lock is held, and becomes the command.

use std::{
    ffi::OsString,
    io::{self, stdin},
    os::{
        fd::{AsFd, OwnedFd},
        unix::process::CommandExt,
    },
    process::{Command, ExitCode},
};

use nix::sys::{
    signal::{SigSet, SigmaskHow},
    signalfd::{SfdFlags, SignalFd},
};
use rustix::{
    process::{Signal, getppid, set_parent_process_death_signal},
    stdio::{dup2_stderr, dup2_stdin, dup2_stdout},
};

use super::{
    message::{self, Go, NotRun},
    split,
};

/// Words: the guardian's process id, the lock's name, the command.
pub(super) fn main(words: &[OsString]) -> ExitCode {
    let Ok(gate) = stdin().as_fd().try_clone_to_owned() else {
        return ExitCode::FAILURE;
    };
    match pass(&gate, words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let errno = error.raw_os_error().unwrap_or_default();
            drop(message::tell(&gate, &NotRun { errno }));
            ExitCode::FAILURE
        }
    }
}

/// Returns only when there is no command to become: quietly when the runner has gone away.
fn pass(gate: &OwnedFd, words: &[OsString]) -> io::Result<()> {
    let (guardian, words) = split(words)?;
    let (_name, words) = split(words)?;
    let (program, arguments) = split(words)?;
    // Nothing runs yet, so there is nothing for a signal to end.
    let mask = SigSet::all().thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
    die_with(guardian.to_str().and_then(|id| id.parse().ok()))?;
    let Some((Go { environment }, descriptors)) = message::hear_with(gate)? else {
        return Ok(());
    };
    take(&descriptors)?;
    forget_signals()?;
    mask.thread_set_mask()?;
    let mut command = Command::new(program);
    command.args(arguments);
    for (name, value) in environment {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    Err(command.exec())
}

/// The kernel ends this process, and what it becomes, together with the guardian.
fn die_with(guardian: Option<i32>) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // Only the end of a parent that is still there is noticed.
    match guardian == getppid().map(|parent| parent.as_raw_nonzero().get()) {
        true => Ok(()),
        false => Err(io::Error::other("the guardian is gone")),
    }
}

/// What came to the gate was not for the command.
fn forget_signals() -> io::Result<()> {
    let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
    let pending = SignalFd::with_flags(&SigSet::all(), flags)?;
    while pending.read_signal()?.is_some() {}
    Ok(())
}

fn take(descriptors: &[OwnedFd]) -> io::Result<()> {
    let [stdin, stdout, stderr] = descriptors else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    dup2_stdin(stdin)?;
    dup2_stdout(stdout)?;
    dup2_stderr(stderr)?;
    Ok(())
}
