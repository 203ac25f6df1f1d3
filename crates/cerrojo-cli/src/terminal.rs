//! The terminal that the runner was started on, and the job control of a shell above it.

use std::{
    fs::File,
    io::{self, IsTerminal, Write},
};

use nix::sys::signal::{SigSet, SigmaskHow, Signal as NixSignal};
use rustix::{
    process::{self, Pid, Signal},
    termios::{self, OptionalActions, Termios},
};

use crate::family::{self, Member};

/// Our controlling terminal, whose foreground is lent to the command: a group in the background is stopped when it
/// reads.
#[derive(Debug, Default)]
pub(crate) struct Terminal {
    /// None: we have none, as under cron.
    device: Option<File>,
    /// The modes it had, while it is lent.
    lent: Option<Termios>,
}

impl Terminal {
    pub(crate) fn open() -> Self {
        Self { device: File::options().read(true).write(true).open("/dev/tty").ok(), lent: None }
    }

    /// Lends the foreground to a command that is about to start. One that stands in a pipeline is not
    /// given it before it asks: others in the pipeline may need it.
    pub(crate) fn lend_at_start(&mut self, group: Pid) {
        if io::stdin().is_terminal() && io::stdout().is_terminal() {
            self.lend(group);
        }
    }

    /// Whether the foreground is the group's now. It is not ours to give when we are in the background.
    pub(crate) fn lend(&mut self, group: Pid) -> bool {
        let Some(device) = self.device.as_ref().filter(|_| self.is_ours()) else {
            return false;
        };
        let modes = termios::tcgetattr(device).ok();
        if termios::tcsetpgrp(device, group).is_ok() {
            self.lent = modes;
        }
        self.is_lent()
    }

    pub(crate) fn is_lent(&self) -> bool {
        self.lent.is_some()
    }

    /// Whether what is typed reaches us.
    fn is_ours(&self) -> bool {
        let foreground = self.device.as_ref().map(termios::tcgetpgrp);
        foreground.and_then(Result::ok).is_some_and(|group| Some(group) == family::our_group())
    }

    /// Takes back what was lent.
    pub(crate) fn take_back(&mut self) {
        self.retrieve(|_, _| {});
    }

    /// Takes back what was lent, in the modes that it had: its user did not come to leave it in order.
    pub(crate) fn take_back_and_reset(&mut self) {
        self.retrieve(|device, modes| {
            let _ = termios::tcsetattr(device, OptionalActions::Now, modes);
        });
    }

    /// Ends the line that shows the key which ended the command, as a shell does for its own.
    pub(crate) fn end_line(&self) {
        if let Some(mut device) = self.device.as_ref() {
            drop(device.write_all(b"\n"));
        }
    }

    /// By now we are in the background, where these calls stop the caller unless SIGTTOU is blocked.
    fn retrieve(&mut self, then: impl FnOnce(&File, &Termios)) {
        let (Some(device), Some(modes)) = (&self.device, self.lent.take()) else {
            return;
        };
        let block = SigSet::from(NixSignal::SIGTTOU);
        let Ok(before) = block.thread_swap_mask(SigmaskHow::SIG_BLOCK) else {
            return;
        };
        let ours = family::our_group();
        let _ = ours.map(|ours| termios::tcsetpgrp(device, ours));
        then(device, &modes);
        let _ = before.thread_set_mask();
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.take_back_and_reset();
    }
}

/// Stops this process, and is back when it was continued. With `Whole`, its whole group, as a key would.
pub(crate) fn stop(job: Job) {
    let _ = match job {
        Job::Whole => process::kill_current_process_group(Signal::STOP),
        Job::Part => process::kill_process(process::getpid(), Signal::STOP),
    };
}

/// What there is to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Job {
    /// Nobody has told the rest of our group yet.
    Whole,
    /// The others know.
    Part,
}

/// Whether a shell is there that could continue our group. Without one, a stop would be for good, and the kernel does not
/// let a terminal stop such a group either.
pub(crate) fn somebody_can_continue_us() -> bool {
    let Some(us) = Member::find(process::getpid()) else { return false };
    let mut ancestor = us.parent;
    while let Some(member) = ancestor.and_then(Member::find) {
        if member.group != us.group {
            return member.session == us.session;
        }
        ancestor = member.parent;
    }
    false
}
