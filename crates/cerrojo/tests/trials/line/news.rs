//! News that nobody tells: one that is lost, a lock that was freed by hand, a holder that is silent.

use std::time::Duration;

use cerrojo::Instant;
use cerrojo_testbed::{Direction, Proxy};

use super::{NAME, PROVISIONAL, SLACK, TICK, queued};
use crate::site::{Outcome, Site};

pub(crate) async fn lost_news_are_noticed_by_the_next_in_line_and_by_the_tick(
    site: Site,
) -> Outcome {
    let proxy = Proxy::start(site.server.port())?;
    let lockers = [site.locks_that_listen_at(proxy.port()).await?, site.locks().await?];
    let guard = site.locks().await?.acquire(NAME).await?;
    let mut waiters = queued(&site, &lockers, 30_000).await?;
    site.until_at_rest().await?;
    let arrived = proxy.counts()?.to_client.arrived;
    proxy.swallow(Direction::ToClient)?;
    let start = Instant::now();
    guard.release().await?;
    proxy.await_counts(SLACK, move |counts| counts.to_client.arrived > arrived)?;
    proxy.flow(Direction::ToClient)?;
    let (guard, delay) = waiters.remove(1).entered_after(start).await?;
    assert!(delay < PROVISIONAL + SLACK, "{delay:?}");
    guard.release().await?;
    let (guard, delay) = waiters.remove(0).entered_after(start).await?;
    assert!(delay < TICK + SLACK, "{delay:?}");
    Ok(guard.release().await?)
}

pub(crate) async fn what_is_freed_by_hand_is_noticed_by_the_tick(site: Site) -> Outcome {
    site.hold_silently(60_000).await?;
    let waiter = queued(&site, &site.lockers(1).await?, 30_000).await?.remove(0);
    site.until_at_rest().await?;
    site.free_by_hand().await?;
    let (guard, delay) = waiter.entered_after(Instant::now()).await?;
    assert!(delay < TICK + SLACK, "{delay:?}");
    Ok(guard.release().await?)
}

pub(crate) async fn the_next_enters_right_after_the_ttl_of_a_silent_holder(site: Site) -> Outcome {
    let lockers = site.lockers(2).await?;
    let start = Instant::now();
    site.hold_silently(4_000).await?;
    let mut waiters = queued(&site, &lockers, 30_000).await?;
    let (guard, after) = waiters.remove(0).entered_after(start).await?;
    assert!(after >= Duration::from_secs(4), "entered after {after:?}");
    assert!(after < Duration::from_secs(4) + SLACK, "entered after {after:?}");
    guard.release().await?;
    Ok(waiters.remove(0).entered().await?.0.release().await?)
}

/// Also those far back in the line, who were told to ask much later.
pub(crate) async fn holders_that_crash_one_after_another_cost_one_ttl_each(site: Site) -> Outcome {
    let lockers = site.lockers(7).await?;
    let start = Instant::now();
    site.hold_silently(6_000).await?;
    let mut entries = vec![start + Duration::from_secs(6)];
    for waiter in queued(&site, &lockers, 300).await? {
        let (guard, entered) = waiter.entered().await?;
        entries.push(entered);
        guard.detach().await?;
    }
    let each = entries.windows(2).map(|two| two[1].since(two[0]));
    assert!(each.max() < Some(SLACK), "entered at {entries:?}");
    Ok(())
}
