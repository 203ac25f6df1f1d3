//! Waiters that give up.

use std::time::Duration;

use cerrojo::{ErrorKind, Instant};
use cerrojo_testbed::{Direction, Proxy};

use crate::{
    line::{NAME, PROVISIONAL, SLACK, Waiter, ends::cancelled_at_the_hand_over},
    site::{Outcome, Site, kind_of, open, ttl, until},
};

pub(crate) use crate::line::ends::who_leaves_a_free_lock_passes_it_on;

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
    let (guard, delay) = next.entered_after(before).await?;
    assert!(delay < PROVISIONAL + SLACK, "{delay:?}");
    Ok(guard.release().await?)
}

/// At many moments around the one at which the lock becomes its own.
pub(crate) async fn a_waiter_cancelled_at_the_hand_over_passes_the_lock_on(site: Site) -> Outcome {
    cancelled_at_the_hand_over(&site, 100, Duration::from_micros(50)).await?;
    assert_eq!((site.waiting().await?, site.owner().await?), (0, None));
    until("no connection", async || Ok(site.connections().await? == 0)).await
}
