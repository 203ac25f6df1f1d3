//! What the runner does while it waits and while the command runs: passes things on between the user, the lease and the
//! guardian.

use std::{io, os::unix::process::ExitStatusExt, process::ExitStatus, time::Duration};

use cerrojo::{BoundTo, Instant, LostSignal, clock};
use rustix::process::{Pid, Signal};

use crate::{
    exit::Failure,
    guardian::{Go, Guarded, Lease, OnLost, Order, Report},
    signals::{Children, Signals},
    terminal::{self, Job, Terminal},
    waiting::{Waited, interrupt},
};

/// How long after the end of the validity a guardian is still given to say that the command is gone.
const PATIENCE: Duration = Duration::from_secs(1);

/// How a command ended.
#[derive(Debug)]
pub(super) enum Ended {
    ByItself(ExitStatus),
    /// It never ran.
    NotRun(io::Error),
    /// The lease was running out.
    ByUs,
    /// The guardian was killed, or did not answer.
    WithItsGuardian,
}

#[derive(Debug)]
enum Event {
    /// None: the guardian is gone.
    Report(Option<Report>),
    Signal(Signal),
    ChildChanged,
    /// None: the lease is lost.
    ValidUntil(Option<Instant>),
    /// The guardian should have spoken by now.
    Overdue,
}

#[derive(Debug)]
pub(super) struct Runner<'a> {
    guarded: &'a Guarded,
    group: Pid,
    signals: Signals,
    children: &'a mut Children,
    terminal: Terminal,
    on_lost: OnLost,
}

impl<'a> Runner<'a> {
    pub(super) fn new(
        guarded: &'a Guarded,
        group: Pid,
        signals: Signals,
        children: &'a mut Children,
    ) -> Self {
        let terminal = Terminal::open();
        Self { guarded, group, signals, children, terminal, on_lost: OnLost::Term }
    }

    pub(super) fn bound_to(&self) -> BoundTo {
        self.guarded.bound_to(self.group)
    }

    /// What `work` answers, unless a signal comes first, or there is no guardian any more to run a command under.
    pub(super) async fn meanwhile<T>(
        &mut self,
        work: impl Future<Output = T>,
    ) -> Result<Waited<T>, Failure> {
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                biased;
                signal = interrupt(&mut self.signals) => return Ok(Waited::Interrupted(signal)),
                report = self.guarded.report() => match report {
                    Some(Report::Stopped { .. }) => {}
                    _ => return Err(nothing_to_run_under()),
                },
                () = self.children.changed() => self.guarded.wake(),
                ready = &mut work => return Ok(Waited::Ready(ready)),
            }
        }
    }

    /// Starts the command. The terminal is its own before it can read.
    pub(super) fn go(&mut self, lease: Lease, go: &Go) -> Result<(), Failure> {
        self.on_lost = lease.on_lost;
        self.terminal.lend_at_start(self.group);
        self.guarded.go(lease, go)
    }

    /// Ready when the command is gone; when it was ended for the lease's sake, with all that it had started.
    pub(super) async fn until_gone(&mut self, lost: &LostSignal, mut end: Instant) -> Ended {
        let mut known = Some(end);
        loop {
            match self.next(lost, known, end).await {
                Event::Report(Some(report)) => {
                    if let Some(ended) = self.heed(report) {
                        return ended;
                    }
                }
                Event::Report(None) | Event::Overdue => return self.without_guardian().await,
                Event::Signal(signal) => self.pass_on(signal),
                Event::ChildChanged => self.guarded.wake(),
                Event::ValidUntil(valid_until) => {
                    known = valid_until;
                    end = valid_until.unwrap_or(end);
                    self.tell_validity(valid_until);
                }
            }
        }
    }

    /// `known` is the validity that the guardian was told, `end` the last one that there was.
    async fn next(&mut self, lost: &LostSignal, known: Option<Instant>, end: Instant) -> Event {
        let is_ending = known.is_none() && self.on_lost != OnLost::Ignore;
        tokio::select! {
            biased;
            report = self.guarded.report() => Event::Report(report),
            valid_until = lost.valid_until_changes(known) => Event::ValidUntil(valid_until),
            signal = self.signals.next() => Event::Signal(signal),
            () = self.children.changed() => Event::ChildChanged,
            () = clock::sleep_until(end + PATIENCE), if is_ending => Event::Overdue,
        }
    }

    fn tell_validity(&self, valid_until: Option<Instant>) {
        let order = match valid_until {
            Some(valid_until) => Order::Renewed { valid_until_ns: valid_until.as_nanos() },
            None => Order::Lost,
        };
        self.guarded.tell(&order);
    }

    fn heed(&mut self, report: Report) -> Option<Ended> {
        match report {
            Report::Started { .. } => None,
            Report::Stopped { signal } => {
                self.stopped(signal);
                None
            }
            Report::Ended { status } => Some(self.ended(ExitStatus::from_raw(status))),
            Report::EndedByUs => {
                self.terminal.take_back_and_reset();
                Some(Ended::ByUs)
            }
        }
    }

    /// A command that ended in order may have meant the modes that it leaves, as `stty` does.
    fn ended(&mut self, status: ExitStatus) -> Ended {
        match status.signal() {
            Some(signal) => {
                let by_a_key = self.terminal.is_lent() && signal == Signal::INT.as_raw();
                self.terminal.take_back_and_reset();
                if by_a_key {
                    self.terminal.end_line();
                }
            }
            None => self.terminal.take_back(),
        }
        match self.guarded.not_run() {
            Some(error) => Ended::NotRun(error),
            None => Ended::ByItself(status),
        }
    }

    async fn without_guardian(&mut self) -> Ended {
        self.guarded.end().await;
        self.terminal.take_back_and_reset();
        Ended::WithItsGuardian
    }

    /// A stop that nobody could undo is not passed on, as the kernel would not.
    fn pass_on(&self, signal: Signal) {
        if signal != Signal::TSTP || terminal::somebody_can_continue_us() {
            self.guarded.tell(&Order::Signal(signal.as_raw()));
        }
    }

    /// The command was stopped: by a key, because it wants the terminal, or by somebody who has reasons.
    fn stopped(&mut self, signal: i32) {
        let signal = Signal::from_named_raw(signal);
        let wants_terminal = matches!(signal, Some(Signal::TTIN | Signal::TTOU));
        let can_stop = terminal::somebody_can_continue_us();
        if wants_terminal && !self.terminal.is_lent() && self.terminal.lend(self.group) {
            self.guarded.tell(&Order::Signal(Signal::CONT.as_raw()));
        } else if can_stop
            && (self.terminal.is_lent() || wants_terminal || signal == Some(Signal::TSTP))
        {
            self.stop_with_command();
        } else if signal == Some(Signal::TSTP) {
            self.guarded.tell(&Order::Signal(Signal::CONT.as_raw()));
        }
    }

    /// As one job, and on again as one.
    fn stop_with_command(&mut self) {
        let job = if self.terminal.is_lent() { Job::Whole } else { Job::Part };
        self.terminal.take_back_and_reset();
        terminal::stop(job);
        if job == Job::Whole {
            self.terminal.lend(self.group);
        }
        self.guarded.tell(&Order::Signal(Signal::CONT.as_raw()));
    }
}

fn nothing_to_run_under() -> Failure {
    Failure::system("the command cannot be run", io::Error::other("its guardian is gone"))
}
