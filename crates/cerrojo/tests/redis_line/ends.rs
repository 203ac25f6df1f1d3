//! Waiters that give up.

use std::time::Duration;

use cerrojo::{ErrorKind, Instant, clock};
use cerrojo_testbed::{Direction, Proxy};

use crate::site::{
    LINE, LOCK, NAME, Outcome, PROVISIONAL, Site, WANTS, Waiter, kind_of, open, ttl,
};

/// How long a waiter keeps its place without a sign of life, in ms.
const PLACE_MS: i64 = 30_000;

pub(crate) async fn a_waiter_that_gives_up_leaves_nothing(site: Site) -> Outcome {
    let guard = site.locks().await?.acquire(NAME).await?;
    let locks = site.locks().await?;
    let answer = locks.acquire(NAME).wait(Duration::from_millis(300)).await;
    assert_eq!(kind_of(&answer), Some(ErrorKind::Contended), "{answer:?}");
    assert_eq!(site.number(&["EXISTS", LINE, WANTS])?, 0);
    let waiter = Waiter::start(&locks, ttl(30_000));
    site.until_waiting(1).await?;
    waiter.abort();
    site.until_waiting(0).await?;
    assert_eq!(site.number(&["EXISTS", LINE, WANTS])?, 0);
    guard.release().await?;
    assert_eq!(site.number(&["DBSIZE"])?, 0);
    Ok(())
}

/// A lock whose key was deleted by hand, before anybody has noticed.
pub(crate) async fn who_leaves_a_free_lock_passes_it_on(site: Site) -> Outcome {
    site.hold_silently(60_000)?;
    let gone = Waiter::start(&site.locks().await?, ttl(30_000));
    site.until_waiting(1).await?;
    let next = Waiter::start(&site.locks().await?, ttl(30_000));
    site.until_waiting(2).await?;
    site.until_at_rest().await?;
    site.ask(&["DEL", LOCK])?;
    let before = Instant::now();
    gone.abort();
    let (_, entered) = next.entered().await?;
    let delay = entered.since(before);
    assert!(delay < PROVISIONAL, "{delay:?}");
    Ok(())
}

pub(crate) async fn a_leave_that_is_lost_ends_by_its_lease(site: Site) -> Outcome {
    let proxy = Proxy::start(site.server.port())?;
    let locks = open(&format!("redis://{}", proxy.address())).await?;
    let guard = site.locks().await?.acquire(NAME).await?;
    let waiter = Waiter::start(&locks, ttl(30_000));
    site.until_waiting(1).await?;
    proxy.hold(Direction::ToServer)?;
    waiter.abort();
    let next = Waiter::start(&site.locks().await?, ttl(30_000));
    site.until_waiting(2).await?;
    for key in [LINE, WANTS] {
        let pttl = site.number(&["PTTL", key])?;
        assert!((1..=PLACE_MS).contains(&pttl), "{key} ends in {pttl} ms");
    }
    let before = Instant::now();
    guard.release().await?;
    let (_, entered) = next.entered().await?;
    let delay = entered.since(before);
    assert!(delay < PROVISIONAL + Duration::from_secs(3), "{delay:?}");
    Ok(())
}

/// At two hundred moments around the one at which the lock becomes its own.
pub(crate) async fn a_waiter_cancelled_at_the_hand_over_passes_the_lock_on(site: Site) -> Outcome {
    let (holder, gone, next) = (site.locks().await?, site.locks().await?, site.locks().await?);
    for round in 0..200_u32 {
        let guard = holder.acquire(NAME).await?;
        let cancelled = Waiter::start(&gone, ttl(30_000));
        site.until_waiting(1).await?;
        let waiter = Waiter::start(&next, ttl(30_000));
        site.until_waiting(2).await?;
        let released = Instant::now();
        let release = tokio::spawn(guard.release());
        // All moments of the first 2 ms, in an order that jumps.
        pass(Duration::from_micros(10) * (round * 77 % 200)).await;
        cancelled.abort();
        release.await??;
        let (guard, entered) = waiter.entered().await?;
        let delay = entered.since(released);
        assert!(delay < PROVISIONAL, "round {round}: {delay:?}");
        guard.release().await?;
    }
    clock::sleep(Duration::from_millis(50)).await;
    assert_eq!(site.number(&["EXISTS", LOCK, LINE, WANTS])?, 0);
    Ok(())
}

/// Finer than a timer.
async fn pass(length: Duration) {
    let end = Instant::now() + length;
    while Instant::now() < end {
        tokio::task::yield_now().await;
    }
}
