//! Waiters that give up.

use std::time::Duration;

use cerrojo::{Deadline, ErrorKind, Instant};
use cerrojo_testbed::{Direction, Proxy};

use crate::site::{
    LONG, NAME, Outcome, PROVISIONAL, SLACK, Site, Waiter, eventually, kind_of, open, queued, ttl,
};

pub(crate) async fn a_waiter_that_gives_up_leaves_nothing(site: Site) -> Outcome {
    let (holder, locks) = (site.locks().await?, site.locks().await?);
    let guard = holder.acquire(NAME).await?;
    let answer = locks.acquire(NAME).wait(Duration::from_millis(300)).await;
    assert_eq!(kind_of(&answer), Some(ErrorKind::Contended), "{answer:?}");
    assert_eq!(site.waiting().await?, 0);
    let waiter = Waiter::start(&locks, ttl(30_000));
    site.until_waiting(1).await?;
    waiter.abort();
    site.until_waiting(0).await?;
    guard.release().await?;
    // The lock is not kept for somebody who has gone.
    Ok(holder.try_acquire(NAME).await?.release().await?)
}

/// A lock whose row was freed by hand, before anybody has noticed.
pub(crate) async fn who_leaves_a_free_lock_passes_it_on(site: Site) -> Outcome {
    site.hold_silently(60_000).await?;
    let mut waiters = queued(&site, &site.lockers(2).await?, 30_000).await?;
    site.until_at_rest().await?;
    site.look("UPDATE LOCK SET owner = NULL WHERE name = 'a'").await?;
    let before = Instant::now();
    waiters.remove(0).abort();
    let (guard, entered) = waiters.remove(0).entered().await?;
    let delay = entered.since(before);
    assert!(delay < PROVISIONAL, "{delay:?}");
    Ok(guard.release().await?)
}

pub(crate) async fn a_leave_that_is_lost_ends_by_itself(site: Site) -> Outcome {
    let proxy = Proxy::start(site.server.port())?;
    let locks = open(&site.url_at(proxy.port(), "")).await?;
    let guard = site.locks().await?.acquire(NAME).await?;
    let waiter = Waiter::start(&locks, ttl(30_000));
    site.until_waiting(1).await?;
    proxy.hold(Direction::ToServer)?;
    waiter.abort();
    let next = site.locks().await?;
    let next = Waiter::start(&next, ttl(30_000));
    site.until_waiting(2).await?;
    let lasting = "SELECT count(*) FROM LOCK_waiter \
        WHERE alive_until > clock_timestamp() + interval '30 s'";
    assert_eq!(site.number(lasting).await?, 0);
    let before = Instant::now();
    guard.release().await?;
    let (guard, entered) = next.entered().await?;
    let delay = entered.since(before);
    assert!(delay < PROVISIONAL + SLACK, "{delay:?}");
    Ok(guard.release().await?)
}

/// At many moments around the one at which the lock becomes its own.
pub(crate) async fn a_waiter_cancelled_at_the_hand_over_passes_the_lock_on(site: Site) -> Outcome {
    let lockers = site.lockers(3).await?;
    for round in 0..100_u32 {
        let guard = lockers[0].acquire(NAME).await?;
        let mut waiters = queued(&site, &lockers[1..], 30_000).await?;
        let released = Instant::now();
        let release = tokio::spawn(guard.release());
        // All moments of the first 5 ms, in an order that jumps.
        pass(Duration::from_micros(50) * (round * 77 % 100)).await;
        waiters.remove(0).abort();
        release.await??;
        let (guard, entered) = waiters.remove(0).entered().await?;
        let delay = entered.since(released);
        assert!(delay < PROVISIONAL, "round {round}: {delay:?}");
        guard.release().await?;
    }
    for locks in &lockers {
        locks.close(Deadline::after(LONG)).await?;
    }
    assert_eq!((site.waiting().await?, site.owner().await?), (0, None));
    drop(lockers);
    eventually("no connection", async || Ok(site.connections().await? == 0)).await
}

/// Finer than a timer.
async fn pass(length: Duration) {
    let end = Instant::now() + length;
    while Instant::now() < end {
        tokio::task::yield_now().await;
    }
}
