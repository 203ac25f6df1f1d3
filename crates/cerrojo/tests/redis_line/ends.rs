//! Waiters that give up.

use std::time::Duration;

use cerrojo::{ErrorKind, Instant, clock};
use cerrojo_testbed::{Direction, Proxy};

use crate::{
    line::{NAME, PROVISIONAL, SLACK, Waiter, ends::cancelled_at_the_hand_over},
    site::{LINE, LOCK, Outcome, Site, WANTS, kind_of, ttl},
};

pub(crate) use crate::line::ends::who_leaves_a_free_lock_passes_it_on;

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

pub(crate) async fn a_leave_that_is_lost_ends_by_its_lease(site: Site) -> Outcome {
    let proxy = Proxy::start(site.server.port())?;
    let locks = site.locks_that_listen_at(proxy.port()).await?;
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
    let (_, delay) = next.entered_after(before).await?;
    assert!(delay < PROVISIONAL + SLACK, "{delay:?}");
    Ok(())
}

/// At moments of the first 2 ms.
pub(crate) async fn a_waiter_cancelled_at_the_hand_over_passes_the_lock_on(site: Site) -> Outcome {
    cancelled_at_the_hand_over(&site, 200, Duration::from_micros(10)).await?;
    clock::sleep(Duration::from_millis(50)).await;
    assert_eq!(site.number(&["EXISTS", LOCK, LINE, WANTS])?, 0);
    Ok(())
}
