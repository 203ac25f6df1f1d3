//! What a keeper publishes of its lease, and how it is read.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::clock::{self, Instant};

/// The state of a lease, as seen now.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseState {
    /// Ours, and the last renewal worked.
    Held,
    /// Ours until the validity ends, but the last renewal failed.
    AtRisk,
    /// Not to be trusted any more. Final.
    Lost,
    /// Given back by us. Final.
    Released,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Status {
    pub(crate) state: LeaseState,
    pub(crate) valid_until: Instant,
    pub(crate) renewals: u64,
}

impl Status {
    /// The state by the clock: past the validity nothing is held, whether or not the keeper has run.
    fn state_at(&self, now: Instant) -> LeaseState {
        match self.state {
            LeaseState::Held | LeaseState::AtRisk if now >= self.valid_until => LeaseState::Lost,
            state => state,
        }
    }
}

/// The keeper's side and everybody else's, of one lease.
///
/// Status and clock are read as one, under the lock; and nothing is published once the validity is over. So nobody
/// sees lost and then held.
#[derive(Debug)]
pub(crate) struct Published {
    status: Mutex<Status>,
    changed: Notify,
}

impl Published {
    pub(crate) fn new(valid_until: Instant) -> Self {
        let status = Status { state: LeaseState::Held, valid_until, renewals: 0 };
        Self { status: Mutex::new(status), changed: Notify::new() }
    }

    /// The status, with its state by the clock.
    pub(crate) fn read(&self) -> Status {
        let status = self.lock();
        Status { state: status.state_at(Instant::now()), ..*status }
    }

    /// Changes the status, unless the lease is lost. False: it was, and is.
    pub(crate) fn change(&self, change: impl FnOnce(&mut Status)) -> bool {
        let mut status = self.lock();
        let lost = status.state_at(Instant::now()) == LeaseState::Lost;
        if lost {
            status.state = LeaseState::Lost;
        } else {
            change(&mut status);
        }
        drop(status);
        self.changed.notify_waiters();
        !lost
    }

    fn lock(&self) -> MutexGuard<'_, Status> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tells whether a lease can still be trusted; cloneable, for spawned tasks.
///
/// It reads the clock itself each time: it is never late, also when the keeper could not run.
#[derive(Clone, Debug)]
pub struct LostSignal(Arc<Published>);

impl LostSignal {
    pub(crate) fn new(published: Arc<Published>) -> Self {
        Self(published)
    }

    /// The state by the clock, now.
    #[must_use]
    pub fn state(&self) -> LeaseState {
        self.0.read().state
    }

    /// Until when the lease may be acted on unless renewed again; `None` once lost or released.
    #[must_use]
    pub fn valid_until(&self) -> Option<Instant> {
        let status = self.0.read();
        let held = matches!(status.state, LeaseState::Held | LeaseState::AtRisk);
        held.then_some(status.valid_until)
    }

    /// How often the lease has been renewed.
    #[must_use]
    pub fn renewals(&self) -> u64 {
        self.0.read().renewals
    }

    /// Ready once [`valid_until`](Self::valid_until) is another one than `known`: after a renewal, the loss or the
    /// release. Says which.
    ///
    /// Never ready again after `None`, which is final.
    ///
    /// # Cancel safety
    ///
    /// May be dropped and called again at any time.
    pub async fn valid_until_changes(&self, known: Option<Instant>) -> Option<Instant> {
        loop {
            // Listens before it reads, so that no change is missed in between.
            let changed = self.0.changed.notified();
            let valid_until = self.valid_until();
            match known {
                _ if valid_until != known => return valid_until,
                Some(end) => drop(clock::until(end, changed).await),
                None => std::future::pending().await,
            }
        }
    }

    /// Ready once the lease can no longer be trusted: the store said so, or its validity is over.
    ///
    /// Never ready after a release of our own. It needs Tokio's time driver. After a suspend of the machine a task
    /// that sleeps here is woken within [`clock::RE_READ`]; any poll before that reads the clock.
    ///
    /// # Cancel safety
    ///
    /// May be dropped and called again at any time.
    pub async fn lost(&self) {
        loop {
            // Listens before it reads, so that no change is missed in between.
            let changed = self.0.changed.notified();
            let status = self.0.read();
            match status.state {
                LeaseState::Lost => return,
                LeaseState::Released => std::future::pending().await,
                LeaseState::Held | LeaseState::AtRisk => {}
            }
            // By its own clock too: the keeper may be gone, or unable to run.
            let _ = clock::until(status.valid_until, changed).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn published(validity: Duration) -> Published {
        Published::new(Instant::now() + validity)
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn past_the_validity_nothing_is_held_and_nothing_can_be_published() {
        let lease = published(SECOND);
        assert_eq!(lease.read().state, LeaseState::Held);
        clock::sleep(SECOND).await;
        assert_eq!(lease.read().state, LeaseState::Lost);
        assert!(!lease.change(|status| status.valid_until = Instant::now() + SECOND));
        assert_eq!(lease.read().state, LeaseState::Lost);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_released_is_never_lost() {
        let lease = Arc::new(published(SECOND));
        assert!(lease.change(|status| status.state = LeaseState::Released));
        assert!(clock::within(SECOND * 5, LostSignal::new(lease).lost()).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn each_change_of_the_validity_is_told_and_the_loss_is_the_last() {
        let lease = Arc::new(published(SECOND));
        let signal = LostSignal::new(Arc::clone(&lease));
        let first = signal.valid_until();
        assert!(clock::within(SECOND / 2, signal.valid_until_changes(first)).await.is_err());
        let second = Instant::now() + SECOND;
        assert!(lease.change(|status| status.valid_until = second));
        assert_eq!(signal.valid_until_changes(first).await, Some(second));
        assert_eq!(signal.valid_until_changes(Some(second)).await, None);
        assert!(Instant::now() >= second);
        assert!(clock::within(SECOND * 5, signal.valid_until_changes(None)).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_waiting_signal_follows_renewals_and_wakes_at_the_loss() {
        let lease = Arc::new(published(SECOND));
        let signal = LostSignal::new(Arc::clone(&lease));
        let waiting = tokio::spawn(async move { signal.lost().await });
        clock::sleep(SECOND / 2).await;
        assert!(lease.change(|status| status.valid_until = Instant::now() + SECOND * 9));
        clock::sleep(SECOND * 5).await;
        assert!(!waiting.is_finished());
        assert!(lease.change(|status| status.state = LeaseState::Lost));
        let told_at = Instant::now();
        waiting.await.unwrap();
        assert_eq!(Instant::now(), told_at);
    }
}
