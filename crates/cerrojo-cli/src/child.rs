//! A child in a process group of its own: started, signalled, reaped.

use std::{
    ffi::{OsStr, OsString},
    io,
    os::unix::process::ExitStatusExt,
    process::ExitStatus,
    time::Duration,
};

use cerrojo::{Instant, clock};
use nix::sys::signal::{SigSet, SigmaskHow, Signal as NixSignal};
use rustix::{
    process::{self, Pid, Signal},
    termios,
};
use tokio::process::{Child, Command};

use crate::exit::{Exit, Failure};

/// How often a group whose leader is gone is asked for: no event tells that its last process ended.
const GROUP_LOOK: Duration = Duration::from_millis(10);

/// A running command and what it starts, unless that leaves the process group.
#[derive(Debug)]
pub(crate) struct ChildGroup {
    leader: Child,
    group: Pid,
    /// Given back when this is dropped.
    _terminal: Option<Terminal>,
}

impl ChildGroup {
    /// Starts `words` with our stdin, stdout and stderr.
    pub(crate) fn spawn(words: &[OsString], environment: &Environment) -> Result<Self, Failure> {
        let Some((program, arguments)) = words.split_first() else {
            return Err(Failure::usage("there is no command to run"));
        };
        let mut command = Command::new(program);
        command.args(arguments).process_group(0);
        environment.apply(&mut command);
        let leader = command.spawn().map_err(|error| Failure::spawn(program, error))?;
        let group = leader_id(&leader).map_err(|error| Failure::spawn(program, error))?;
        Ok(Self { leader, group, _terminal: Terminal::hand_over(group) })
    }

    /// Sends a signal to the whole group. One that is gone needs none.
    pub(crate) fn signal(&self, signal: Signal) {
        let _ = process::kill_process_group(self.group, signal);
    }

    /// Asks the group to end; a stopped one is woken, or it could not.
    pub(crate) fn terminate(&self) {
        self.signal(Signal::TERM);
        self.signal(Signal::CONT);
    }

    pub(crate) fn kill(&self) {
        self.signal(Signal::KILL);
    }

    /// Ready when the leader has ended. May be dropped and called again.
    pub(crate) async fn wait(&mut self) -> io::Result<ExitStatus> {
        self.leader.wait().await
    }

    /// Whether the whole group had ended by `due`. Only for after the leader's end.
    pub(crate) async fn is_gone_by(&self, due: Instant) -> bool {
        while process::test_kill_process_group(self.group).is_ok() {
            if Instant::now() >= due {
                return false;
            }
            clock::sleep(GROUP_LOOK).await;
        }
        true
    }
}

fn leader_id(leader: &Child) -> io::Result<Pid> {
    let id = leader.id().and_then(|id| i32::try_from(id).ok());
    id.and_then(Pid::from_raw).ok_or_else(|| io::Error::other("the child has no process id"))
}

/// The exit code that passes a child's end on.
pub(crate) fn exit_of(status: ExitStatus) -> Exit {
    match (status.code(), status.signal()) {
        (Some(code), _) => Exit::Child(u8::try_from(code & 0xFF).unwrap_or(u8::MAX)),
        (None, Some(signal)) => Exit::Signal(signal),
        (None, None) => Exit::Child(u8::MAX),
    }
}

/// What the child's environment has beyond ours, and what it has not.
#[derive(Debug, Default)]
pub(crate) struct Environment(Vec<(&'static str, Option<String>)>);

impl Environment {
    pub(crate) fn set(mut self, name: &'static str, value: &impl ToString) -> Self {
        self.0.push((name, Some(value.to_string())));
        self
    }

    pub(crate) fn without(mut self, name: &'static str) -> Self {
        self.0.push((name, None));
        self
    }

    fn apply(&self, command: &mut Command) {
        for (name, value) in &self.0 {
            match value {
                Some(value) => command.env(name, OsStr::new(value)),
                None => command.env_remove(name),
            };
        }
    }
}

/// The terminal's foreground, lent to the child: a group in the background is stopped when it reads.
#[derive(Debug)]
struct Terminal {
    ours: Pid,
}

impl Terminal {
    /// None when stdin is no terminal, or when we are in its background ourselves.
    fn hand_over(group: Pid) -> Option<Self> {
        let ours = process::getpgrp();
        if termios::tcgetpgrp(rustix::stdio::stdin()).ok()? != ours {
            return None;
        }
        termios::tcsetpgrp(rustix::stdio::stdin(), group).ok()?;
        // It may have read before the terminal was its own, and have been stopped for that.
        let _ = process::kill_process_group(group, Signal::CONT);
        Some(Self { ours })
    }
}

impl Drop for Terminal {
    /// By now we are in the background, where this call stops the caller unless SIGTTOU is blocked.
    fn drop(&mut self) {
        let block = SigSet::from(NixSignal::SIGTTOU);
        let Ok(before) = block.thread_swap_mask(SigmaskHow::SIG_BLOCK) else {
            return;
        };
        let _ = termios::tcsetpgrp(rustix::stdio::stdin(), self.ours);
        let _ = before.thread_set_mask();
    }
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
