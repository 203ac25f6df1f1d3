//! Waiters that give up.

use std::time::Duration;

use cerrojo::Instant;

use super::{NAME, PROVISIONAL, queued};
use crate::site::{Outcome, Site};

/// A lock that was freed by hand, before anybody has noticed.
pub(crate) async fn who_leaves_a_free_lock_passes_it_on(site: Site) -> Outcome {
    site.hold_silently(60_000).await?;
    let mut waiters = queued(&site, &site.lockers(2).await?, 30_000).await?;
    site.until_at_rest().await?;
    site.free_by_hand().await?;
    let before = Instant::now();
    waiters.remove(0).abort();
    let (guard, delay) = waiters.remove(0).entered_after(before).await?;
    assert!(delay < PROVISIONAL, "{delay:?}");
    Ok(guard.release().await?)
}

/// The first of two waiters is cancelled at so many moments around the one at which the lock becomes its own: all that are
/// a `step` apart, in an order that jumps. The second enters.
pub(crate) async fn cancelled_at_the_hand_over(
    site: &Site,
    rounds: u32,
    step: Duration,
) -> Outcome {
    let lockers = site.lockers(3).await?;
    for round in 0..rounds {
        let guard = lockers[0].acquire(NAME).await?;
        let mut waiters = queued(site, &lockers[1..], 30_000).await?;
        let released = Instant::now();
        let release = tokio::spawn(guard.release());
        pass(step * (round * 77 % rounds)).await;
        waiters.remove(0).abort();
        release.await??;
        let (guard, delay) = waiters.remove(0).entered_after(released).await?;
        assert!(delay < PROVISIONAL, "round {round}: {delay:?}");
        guard.release().await?;
    }
    for locks in &lockers {
        locks.close(cerrojo::Deadline::after(crate::site::LONG)).await?;
    }
    Ok(())
}

/// Finer than a timer.
async fn pass(length: Duration) {
    let end = Instant::now() + length;
    while Instant::now() < end {
        tokio::task::yield_now().await;
    }
}
