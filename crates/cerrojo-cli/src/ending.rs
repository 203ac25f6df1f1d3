//! Ends a child before its lease ends.
//!
//! | phase | ends by | then |
//! |---|---|---|
//! | running | the lease is lost, or its validity runs out unrenewed | TERM and CONT to the group: ending |
//! | ending | the instant for KILL | KILL to the group: killed |
//! | killed | - | - |
//!
//! In each phase the child's own end is the end of the watch, and signals are passed on. Ending is final: a renewal that
//! succeeds after TERM was sent changes nothing, since a half-stopped command is of no use to anyone.

use std::{io, process::ExitStatus, time::Duration};

use cerrojo::{Instant, LeaseState, LostSignal, Ttl, clock};
use rustix::process::Signal;

use crate::{child::ChildGroup, signals::Signals};

/// The longest time between TERM and the end of the validity.
const GRACE_MAX: Duration = Duration::from_secs(5);
/// How long what got KILL may take to be gone before we no longer look: it is in the kernel's hands.
const KILLED_LIMIT: Duration = Duration::from_secs(1);

/// How a child ended.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ended {
    ByItself(ExitStatus),
    /// The lease was running out.
    ByUs,
}

/// What has been done to the child so far.
#[derive(Clone, Copy, Debug)]
enum Phase {
    Running,
    Ending { kill_at: Instant },
    Killed,
}

#[derive(Debug)]
enum Event {
    Exited(io::Result<ExitStatus>),
    /// The child has to be gone by then.
    LeaseEnds(Instant),
    KillDue,
    Signal(Signal),
}

/// A child and the lease that it runs under.
#[derive(Debug)]
pub(crate) struct Watch {
    child: ChildGroup,
    lease: LeaseEnd,
    phase: Phase,
}

impl Watch {
    pub(crate) fn new(child: ChildGroup, signal: LostSignal, ttl: Ttl) -> Self {
        Self { child, lease: LeaseEnd::new(signal, ttl), phase: Phase::Running }
    }

    /// Ready when the child is gone; when we ended it, with its whole group.
    pub(crate) async fn until_gone(mut self, signals: &mut Signals) -> io::Result<Ended> {
        loop {
            match self.next(signals).await {
                Event::Exited(status) => return self.conclude(status?).await,
                Event::LeaseEnds(kill_at) => self.terminate(kill_at),
                Event::KillDue => self.kill(),
                Event::Signal(signal) => self.child.signal(signal),
            }
        }
    }

    async fn next(&mut self, signals: &mut Signals) -> Event {
        tokio::select! {
            biased;
            status = self.child.wait() => Event::Exited(status),
            event = due(self.phase, &mut self.lease) => event,
            signal = signals.next() => Event::Signal(signal),
        }
    }

    fn terminate(&mut self, kill_at: Instant) {
        self.child.terminate();
        self.phase = Phase::Ending { kill_at };
    }

    fn kill(&mut self) {
        self.child.kill();
        self.phase = Phase::Killed;
    }

    /// The leader is gone. When it was told to go, the rest of its group goes too.
    async fn conclude(mut self, status: ExitStatus) -> io::Result<Ended> {
        if let Phase::Running = self.phase {
            return Ok(Ended::ByItself(status));
        }
        if let Phase::Ending { kill_at } = self.phase
            && !self.child.is_gone_by(kill_at).await
        {
            self.kill();
        }
        self.child.is_gone_by(Instant::now() + KILLED_LIMIT).await;
        Ok(Ended::ByUs)
    }
}

/// What the phase waits for.
async fn due(phase: Phase, lease: &mut LeaseEnd) -> Event {
    match phase {
        Phase::Running => Event::LeaseEnds(lease.ends().await),
        Phase::Ending { kill_at } => {
            clock::sleep_until(kill_at).await;
            Event::KillDue
        }
        Phase::Killed => std::future::pending().await,
    }
}

/// Tells when the child of a lease has to end.
#[derive(Debug)]
struct LeaseEnd {
    signal: LostSignal,
    grace: Duration,
    /// As read last. It is read again before less than the grace is left of it, so that after a loss
    /// at least so much is left.
    valid_until: Instant,
}

impl LeaseEnd {
    fn new(signal: LostSignal, ttl: Ttl) -> Self {
        let valid_until = signal.valid_until().unwrap_or_else(Instant::now);
        Self { signal, grace: GRACE_MAX.min(ttl.get() / 4), valid_until }
    }

    /// Ready when the child has to end; says when at the latest it must get KILL. May be dropped and called again.
    async fn ends(&mut self) -> Instant {
        while let Some(next_look) = self.next_look(Instant::now()) {
            tokio::select! {
                () = self.signal.lost() => {}
                () = clock::sleep_until(next_look) => {}
            }
        }
        self.kill_at(Instant::now())
    }

    /// When to look again; none: the child has to end now.
    fn next_look(&mut self, now: Instant) -> Option<Instant> {
        self.valid_until = self.signal.valid_until()?;
        let grace_begins = self.valid_until - self.grace;
        if now < grace_begins {
            return Some(grace_begins);
        }
        // No renewal has failed: perhaps it could not run yet, as after a suspend. It gets half of the grace.
        let patience_ends = self.valid_until - self.grace / 2;
        let waits = self.signal.state() == LeaseState::Held && now < patience_ends;
        waits.then(|| patience_ends.min(now + self.grace / 8))
    }

    /// Early enough that KILL comes before the validity ends, and no later than the grace from now.
    fn kill_at(&self, now: Instant) -> Instant {
        (now + self.grace).min(self.valid_until - self.grace / 4)
    }
}

#[cfg(test)]
mod tests {
    use cerrojo::{FencedGuard, Locker, backend::memory::Memory};

    use super::*;

    async fn lease(ttl: Duration) -> (LeaseEnd, FencedGuard) {
        let ttl = Ttl::try_from(ttl).unwrap();
        let guard = Locker::new(Memory::new()).acquire("child").ttl(ttl).await.unwrap();
        (LeaseEnd::new(guard.signal(), ttl), guard)
    }

    const HOUR: Duration = Duration::from_secs(3_600);

    #[tokio::test]
    async fn the_grace_is_a_quarter_of_the_ttl_but_no_more_than_5_s() {
        for (ttl_ms, grace_ms) in [(10_000, 2_500), (20_000, 5_000), (3_600_000, 5_000)] {
            let (lease, _guard) = lease(Duration::from_millis(ttl_ms)).await;
            assert_eq!(lease.grace, Duration::from_millis(grace_ms));
        }
    }

    #[tokio::test]
    async fn kill_comes_before_the_validity_ends_and_within_the_grace() {
        let (lease, _guard) = lease(HOUR).await;
        let until = lease.valid_until;
        for left_s in [3_000, 100, 6, 5, 4, 3, 2] {
            let now = until - Duration::from_secs(left_s);
            let kill_at = lease.kill_at(now);
            assert!(kill_at < until && kill_at >= now, "{left_s} s before the end");
            assert!(kill_at.since(now) <= lease.grace, "{left_s} s before the end");
        }
    }

    #[tokio::test]
    async fn a_held_lease_is_looked_at_again_when_the_grace_begins() {
        let (mut lease, _guard) = lease(HOUR).await;
        let until = lease.valid_until;
        assert_eq!(lease.next_look(until - HOUR / 2), Some(until - lease.grace));
    }

    #[tokio::test]
    async fn a_renewal_that_has_not_failed_gets_half_of_the_grace() {
        let (mut lease, _guard) = lease(HOUR).await;
        let (until, grace) = (lease.valid_until, lease.grace);
        let look = lease.next_look(until - grace).unwrap();
        assert!(look > until - grace && look <= until - grace / 2);
        assert_eq!(lease.next_look(until - grace / 2), None);
    }

    #[tokio::test]
    async fn a_store_that_is_away_ends_the_child_while_the_lease_still_holds() {
        let store = Memory::new();
        let ttl = Ttl::secs(8).unwrap();
        let guard = Locker::new(store.clone()).acquire("child").ttl(ttl).await.unwrap();
        let _away = store.interrupt();
        let kill_at = LeaseEnd::new(guard.signal(), ttl).ends().await;
        assert_eq!(guard.state(), LeaseState::AtRisk);
        assert!(guard.valid_until().is_some_and(|until| kill_at < until));
    }

    #[tokio::test]
    async fn a_broken_lease_ends_the_child_while_its_validity_runs() {
        let locks = Locker::new(Memory::new());
        let ttl = Ttl::secs(8).unwrap();
        let guard = locks.acquire("child").ttl(ttl).await.unwrap();
        let until = guard.valid_until().unwrap();
        locks.break_lock(guard.name(), cerrojo::Break::AtExpiry).await.unwrap();
        let kill_at = LeaseEnd::new(guard.signal(), ttl).ends().await;
        assert_eq!(guard.state(), LeaseState::Lost);
        assert!(Instant::now() < until && kill_at < until);
    }
}
