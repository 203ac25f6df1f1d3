//! The guardian's process: one thread that waits for the runner, the command and the clock, and for no store.

use std::{
    ffi::{CStr, OsString},
    fs::File,
    io::{self, stdin, stdout},
    os::{
        fd::{AsFd, OwnedFd},
        unix::process::{CommandExt, ExitStatusExt},
    },
    process::{ExitCode, ExitStatus, Stdio},
};

use cerrojo::Instant;
use nix::sys::{
    signal::{SigSet, Signal as NixSignal},
    signalfd::{SfdFlags, SignalFd},
};
use rustix::{
    event::{PollFd, PollFlags, poll},
    io::{Errno, ioctl_fionbio},
    process::{self, Pid, Signal, WaitOptions},
    stdio::{dup2_stdin, dup2_stdout},
    thread::set_name,
};

use super::{
    GATE,
    ending::{Ending, Step},
    give_back::{self, give_back},
    message::{self, Lease, Order, Report},
    this_program,
    timer::Timer,
};
use crate::family;

/// Not the program's own name: who kills `cerrojo` by that name leaves the guardian to end the command.
const NAME: &CStr = c"lock-guardian";

struct Guardian {
    /// None: the runner is gone.
    runner: Option<OwnedFd>,
    children: SignalFd,
    timer: Timer,
    /// The gate, and then the command: the leader of its group, which has the same id.
    leader: Pid,
    /// The leader's end.
    status: Option<ExitStatus>,
    /// Whether we had begun to end it before.
    ended_by_us: bool,
    /// Whether anything is left of what descends from us.
    has_children: bool,
    /// From when on the lock is held.
    lease: Option<(Lease, Ending)>,
}

/// Words: the lock's name, the command. Stdin is the socket to the runner, stdout the gate's.
pub(super) fn main(words: &[OsString]) -> ExitCode {
    match Guardian::start(words).and_then(Guardian::run) {
        Ok(None) => ExitCode::SUCCESS,
        Ok(Some(lease)) => give_back(&lease),
        Err(error) => give_back::complain(&format!("the guardian cannot go on: {error}")),
    }
}

impl Guardian {
    fn start(words: &[OsString]) -> io::Result<Self> {
        set_name(NAME)?;
        process::set_child_subreaper(Some(process::getpid()))?;
        let (runner, gate) = take_sockets()?;
        // The command inherits the runner's signal mask.
        let leader = start_gate(words, gate)?;
        // Blocked, not handled: nobody but the runner tells the guardian what to do.
        SigSet::all().thread_block()?;
        let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
        let children = SignalFd::with_flags(&SigSet::from(NixSignal::SIGCHLD), flags)?;
        match message::tell(&runner, &Report::Started { group: leader.as_raw_nonzero().get() }) {
            // The runner is gone already, which is heard first of all.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
            told => told?,
        }
        Ok(Self {
            runner: Some(runner),
            children,
            timer: Timer::new()?,
            leader,
            status: None,
            ended_by_us: false,
            has_children: true,
            lease: None,
        })
    }

    /// Ready when the command is gone. The answer: the lease, when nobody else is left to give it back.
    fn run(mut self) -> io::Result<Option<Lease>> {
        loop {
            self.hear_orders();
            self.reap()?;
            self.look();
            match self.status {
                Some(status) if !self.has_more_to_end() => return Ok(self.conclude(status)),
                Some(_) => self.tidy(),
                None => {}
            }
            self.await_event()?;
        }
    }

    fn await_event(&self) -> io::Result<()> {
        self.timer.set(self.lease.as_ref().and_then(|(_, ending)| ending.due()))?;
        let mut events = vec![
            PollFd::new(&self.children, PollFlags::IN),
            PollFd::new(&self.timer, PollFlags::IN),
        ];
        events.extend(self.runner.as_ref().map(|runner| PollFd::new(runner, PollFlags::IN)));
        match poll(&mut events, None) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn hear_orders(&mut self) {
        while let Some(runner) = &self.runner {
            match message::hear(runner) {
                Ok(Some(order)) => self.obey(order),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Ok(None) | Err(_) => self.part(),
            }
        }
    }

    fn obey(&mut self, order: Order) {
        match (order, &mut self.lease) {
            (Order::Guard(lease), _) => {
                let ending = Ending::of(&lease);
                self.lease = Some((lease, ending));
            }
            (Order::Renewed { valid_until_ns }, Some((_, ending))) => {
                ending.renewed(Instant::from_nanos(valid_until_ns));
            }
            (Order::Lost, _) => self.begin_ending(),
            (Order::Signal(signal), _) => self.pass_on(signal),
            (Order::Renewed { .. }, None) => {}
        }
    }

    /// The runner is gone. Without a lease there is nothing but the gate.
    fn part(&mut self) {
        self.runner = None;
        match self.lease {
            Some(_) => self.begin_ending(),
            None => self.act(Step::Kill),
        }
    }

    fn begin_ending(&mut self) {
        let step = self.lease.as_mut().and_then(|(_, ending)| ending.begin(Instant::now()));
        step.into_iter().for_each(|step| self.act(step));
    }

    /// What the command leaves behind would be at work beside the next holder.
    fn tidy(&mut self) {
        let step = self.lease.as_mut().and_then(|(_, ending)| ending.tidy(Instant::now()));
        step.into_iter().for_each(|step| self.act(step));
    }

    /// What the clock alone brings.
    fn look(&mut self) {
        let step = self.lease.as_mut().and_then(|(_, ending)| ending.look(Instant::now()));
        step.into_iter().for_each(|step| self.act(step));
    }

    fn act(&self, step: Step) {
        match step {
            Step::Terminate => {
                self.signal_all(Signal::TERM);
                // What is stopped could not heed it.
                self.signal_all(Signal::CONT);
            }
            Step::Kill => self.signal_all(Signal::KILL),
        }
    }

    /// The group, and what has left it.
    fn signal_all(&self, signal: Signal) {
        let family = family::descendants(process::getpid());
        let (inside, outside): (Vec<_>, Vec<_>) =
            family.into_iter().partition(|member| member.group == Some(self.leader));
        // Once nobody is left in it, its id may be given to others.
        if self.status.is_none() || !inside.is_empty() {
            let _ = process::kill_process_group(self.leader, signal);
        }
        outside.iter().for_each(|member| member.signal(signal));
    }

    /// As long as the leader was not reaped, nobody else has its id.
    fn pass_on(&self, signal: i32) {
        if let (None, Some(signal)) = (self.status, Signal::from_named_raw(signal)) {
            let _ = process::kill_process_group(self.leader, signal);
        }
    }

    /// Takes note of all children that have ended or stopped. Orphans of the command are ours: so when no child
    /// is left, nothing is.
    fn reap(&mut self) -> io::Result<()> {
        while self.children.read_signal()?.is_some() {}
        self.has_children = loop {
            match process::wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
                Ok(Some((pid, status))) if pid == self.leader => self.note(status),
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) => break true,
                Err(_) => break false,
            }
        };
        Ok(())
    }

    fn note(&mut self, status: process::WaitStatus) {
        match status.stopping_signal() {
            Some(signal) => self.report(&Report::Stopped { signal }),
            None => {
                self.ended_by_us = self.is_ending();
                self.status = Some(ExitStatus::from_raw(status.as_raw()));
            }
        }
    }

    /// Without a lease there is nothing but the gate.
    fn has_more_to_end(&self) -> bool {
        self.lease.is_some() && self.has_children
    }

    fn is_ending(&self) -> bool {
        self.lease.as_ref().is_some_and(|(_, ending)| ending.is_under_way())
    }

    fn conclude(self, status: ExitStatus) -> Option<Lease> {
        match self.ended_by_us {
            true => self.report(&Report::EndedByUs),
            false => self.report(&Report::Ended { status: status.into_raw() }),
        }
        let lease = self.lease.map(|(lease, _)| lease);
        lease.filter(|_| self.runner.is_none())
    }

    /// A runner that does not read finds out by our end.
    fn report(&self, report: &Report) {
        if let Some(runner) = &self.runner {
            drop(message::tell(runner, report));
        }
    }
}

/// Moves both sockets away from stdin and stdout, so that nothing inherits them.
fn take_sockets() -> io::Result<(OwnedFd, OwnedFd)> {
    let runner = stdin().as_fd().try_clone_to_owned()?;
    let gate = stdout().as_fd().try_clone_to_owned()?;
    let null = File::options().read(true).write(true).open("/dev/null")?;
    dup2_stdin(&null)?;
    dup2_stdout(&null)?;
    ioctl_fionbio(&runner, true)?;
    Ok((runner, gate))
}

fn start_gate(words: &[OsString], gate: OwnedFd) -> io::Result<Pid> {
    let mut command = this_program(GATE);
    command.arg(std::process::id().to_string()).args(words).stdin(Stdio::from(gate));
    Ok(Pid::from_child(&command.process_group(0).spawn()?))
}
