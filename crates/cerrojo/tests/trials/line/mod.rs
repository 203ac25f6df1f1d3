//! The line of those who wait for a lock in a store on a server: who enters when, whichever store it is. What a trial
//! has at hand, and how it looks at the store, is its target's `Site`.

pub(crate) mod child;
pub(crate) mod dead;
pub(crate) mod ends;
pub(crate) mod news;
pub(crate) mod order;
pub(crate) mod validity;

use std::time::Duration;

use cerrojo::{Instant, Ttl};
use tokio::task::{JoinHandle, JoinSet};

use crate::site::{Held, LONG, Locks, Outcome, Site, soon, ttl, until};

/// The lock of most trials.
pub(crate) const NAME: &str = "a";
/// How long a lock that was handed over is the waiter's before it has confirmed.
pub(crate) const PROVISIONAL: Duration = Duration::from_secs(2);
/// After how long everybody asks by itself, at the latest.
pub(crate) const TICK: Duration = Duration::from_secs(10);
/// What a busy machine may add to a delay. With it, a delay is still below the tick and far below most TTLs.
pub(crate) const SLACK: Duration = Duration::from_secs(3);

impl Site {
    pub(crate) async fn lockers(&self, count: usize) -> Outcome<Vec<Locks>> {
        let mut lockers = Vec::new();
        for _ in 0..count {
            lockers.push(self.locks().await?);
        }
        Ok(lockers)
    }

    /// Waits until so many stand in the line of [`NAME`].
    pub(crate) async fn until_waiting(&self, count: i64) -> Outcome {
        let what = format!("{count} in the line");
        until(&what, async || Ok(self.waiting().await? == count)).await
    }

    /// Waits until nobody in the line asks by itself within the next seconds, and everybody hears.
    pub(crate) async fn until_at_rest(&self) -> Outcome {
        until("a line at rest", async || self.is_at_rest().await).await
    }
}

/// A guard, and when its waiter got it.
pub(crate) type Entered = (Held, Instant);

/// A task that waits for [`NAME`].
pub(crate) struct Waiter(JoinHandle<cerrojo::Result<Entered>>);

impl Waiter {
    pub(crate) fn start(locks: &Locks, ttl: Ttl) -> Self {
        let locks = locks.clone();
        Self(tokio::spawn(async move {
            let guard = locks.acquire(NAME).ttl(ttl).wait(LONG * 2).await?;
            Ok((guard, Instant::now()))
        }))
    }

    /// What it got, within [`LONG`].
    pub(crate) async fn entered(self) -> Outcome<Entered> {
        Ok(soon("a waiter", self.0).await???)
    }

    /// The same, and how long after `start` it got it.
    pub(crate) async fn entered_after(self, start: Instant) -> Outcome<(Held, Duration)> {
        let (guard, entered) = self.entered().await?;
        Ok((guard, entered.since(start)))
    }

    pub(crate) fn is_waiting(&self) -> bool {
        !self.0.is_finished()
    }

    /// Gives up, also what it has got meanwhile.
    pub(crate) fn abort(self) {
        self.0.abort();
    }
}

/// A waiter for each locker, in this order.
pub(crate) async fn queued(site: &Site, lockers: &[Locks], ttl_ms: u64) -> Outcome<Vec<Waiter>> {
    let mut waiters = Vec::new();
    for (count, locks) in (1..).zip(lockers) {
        waiters.push(Waiter::start(locks, ttl(ttl_ms)));
        site.until_waiting(count).await?;
    }
    Ok(waiters)
}

/// Everybody enters and goes, in any order.
pub(crate) async fn all_enter(waiters: Vec<Waiter>) -> Outcome {
    let mut entering: JoinSet<Outcome> = JoinSet::new();
    for waiter in waiters {
        entering.spawn(async move { Ok(waiter.entered().await?.0.release().await?) });
    }
    while let Some(entered) = soon("all", entering.join_next()).await? {
        entered??;
    }
    Ok(())
}
