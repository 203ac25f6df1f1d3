//! The runner's side: a command that a guardian watches.

use std::{
    ffi::OsString,
    io,
    os::{fd::OwnedFd, unix::process::CommandExt},
    process::Stdio,
    time::Duration,
};

use cerrojo::{BoundTo, LockName, clock};
use rustix::{
    io::ioctl_fionbio,
    process::{self, Pid, Signal, WaitId, WaitIdOptions, WaitOptions},
    stdio,
};
use tokio::{io::Interest, net::UnixStream};

use super::{
    GUARDIAN,
    message::{self, Go, Lease, NotRun, Order, Report},
    this_program,
};
use crate::{
    exit::Failure,
    family::{self, Member},
    signals::Children,
};

/// How often what a dead guardian has left is looked after: no event tells of all of it.
const LOOK: Duration = Duration::from_millis(10);
/// How long a guardian that has nothing left to do is waited for.
const PATIENCE: Duration = Duration::from_secs(1);

/// A guardian and its gate, and from [`Guarded::go`] on a command. Dropping it ends all of them.
#[derive(Debug)]
pub(crate) struct Guarded {
    guardian: Pid,
    /// When it was started, in the system's ticks.
    since: u64,
    /// A socket of packets, of which the type lends no more than its registration with the runtime.
    orders: UnixStream,
    gate: OwnedFd,
}

impl Guarded {
    /// Starts guardian and gate. SIGCHLD has to be caught by now: one that is ignored would be ignored by them too.
    pub(crate) fn start(name: &LockName, words: &[OsString]) -> Result<Self, Failure> {
        Self::try_start(name, words)
            .map_err(|error| Failure::system("cannot start the guardian", error))
    }

    fn try_start(name: &LockName, words: &[OsString]) -> io::Result<Self> {
        // What a dead guardian leaves becomes ours.
        process::set_child_subreaper(Some(process::getpid()))?;
        let (orders, theirs) = message::sockets()?;
        let (gate, its) = message::sockets()?;
        let mut command = this_program(GUARDIAN);
        command.arg(name.as_str()).args(words).stdin(Stdio::from(theirs)).stdout(Stdio::from(its));
        // A group of its own, so that nothing typed at a terminal reaches it.
        let guardian = Pid::from_child(&command.process_group(0).spawn()?);
        drop(command);
        ioctl_fionbio(&orders, true)?;
        ioctl_fionbio(&gate, true)?;
        let orders = UnixStream::from_std(orders.into())?;
        let since = Member::find(guardian).map_or(u64::MAX, |guardian| guardian.start);
        Ok(Self { guardian, since, orders, gate })
    }

    /// Ready when the gate stands: the command's process group.
    pub(crate) async fn stands(&self) -> Result<Pid, Failure> {
        let group = match self.report().await {
            Some(Report::Started { group }) => Pid::from_raw(group),
            _ => None,
        };
        group.ok_or_else(|| {
            Failure::system("cannot start the guardian", io::Error::other("it is gone"))
        })
    }

    /// What has to be gone before the lock may be passed on early.
    pub(crate) fn bound_to(&self, group: Pid) -> BoundTo {
        let ids = |pids: &[Pid]| {
            pids.iter().filter_map(|pid| pid.as_raw_nonzero().get().try_into().ok()).collect()
        };
        BoundTo::All { processes: ids(&[process::getpid(), self.guardian]), groups: ids(&[group]) }
    }

    /// The lock is held: the guardian answers for the command's end from now on, and the command may start.
    pub(crate) fn go(&self, lease: Lease, go: &Go) -> Result<(), Failure> {
        let descriptors = [stdio::stdin(), stdio::stdout(), stdio::stderr()];
        let told = message::tell(&self.orders, &Order::Guard(lease));
        told.and_then(|()| message::tell_with(&self.gate, go, &descriptors))
            .map_err(|error| Failure::system("cannot start the command", error))
    }

    /// The next report; none: the guardian is gone. May be dropped at any time.
    pub(crate) async fn report(&self) -> Option<Report> {
        let report = self.orders.async_io(Interest::READABLE, || message::hear(&self.orders)).await;
        report.ok().flatten()
    }

    /// One that cannot be told is gone, or does not listen: [`Guarded::report`] says so, or the clock.
    pub(crate) fn tell(&self, order: &Order) {
        drop(message::tell(&self.orders, order));
    }

    /// Why the command never ran, if it did not. Only for after its end.
    pub(crate) fn not_run(&self) -> Option<io::Error> {
        let not_run: Option<NotRun> = message::hear(&self.gate).ok().flatten();
        not_run.map(|NotRun { errno }| io::Error::from_raw_os_error(errno))
    }

    /// Wakes a guardian that was stopped: it has to be there when it is needed. Called when a child has changed.
    pub(crate) fn wake(&self) {
        wake(self.guardian);
    }

    /// Parts from a guardian that has nothing left to do, and waits for its end: where the first process reaps nobody, as in
    /// many a container, it would stay in the process list for good.
    pub(crate) async fn leave(self, children: &mut Children) {
        let Self { guardian, orders, gate, .. } = self;
        drop((orders, gate));
        let gone = async {
            while !is_reaped(guardian) {
                wake(guardian);
                children.changed().await;
            }
        };
        let _ = clock::within(PATIENCE, gone).await;
    }

    /// Ends a guardian that does not answer, or what a dead one has left; ready when all of it is gone.
    ///
    /// The command itself dies with the guardian. Its descendants are ours by then. Whatever else descends from us was there
    /// before, or is in our own group.
    pub(crate) async fn end(&self) {
        let _ = process::kill_process(self.guardian, Signal::KILL);
        while self.has_orphans() {
            clock::sleep(LOOK).await;
        }
    }

    fn has_orphans(&self) -> bool {
        let (family, ours) = (family::descendants(process::getpid()), family::our_group());
        let is_orphan = |member: &&Member| member.start >= self.since && member.group != ours;
        let orphans: Vec<_> = family.iter().filter(is_orphan).collect();
        orphans.iter().for_each(|orphan| orphan.signal(Signal::KILL));
        orphans.iter().filter(|orphan| !is_reaped_by_us(orphan.pid)).count() > 0
    }
}

/// A child of ours that has ended is reaped; others are reaped by their parents, or become ours.
fn is_reaped_by_us(pid: Pid) -> bool {
    matches!(process::waitpid(Some(pid), WaitOptions::NOHANG), Ok(Some(_)))
}

/// Whether a child has ended, and is reaped now or was before.
fn is_reaped(child: Pid) -> bool {
    !matches!(process::waitpid(Some(child), WaitOptions::NOHANG), Ok(None))
}

/// Asks for stops alone: so an end is not taken note of here, and the id stays the child's.
fn wake(child: Pid) {
    let stops = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
    if let Ok(Some(_)) = process::waitid(WaitId::Pid(child), stops) {
        let _ = process::kill_process(child, Signal::CONT);
    }
}
