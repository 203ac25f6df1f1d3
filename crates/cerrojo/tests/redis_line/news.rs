//! News that nobody tells: a lost push, a key that is gone, a holder that is silent, a server that was away.

use std::time::Duration;

use cerrojo::{ApproximateGuard, Instant, Locker, backend::redis::Redis};
use cerrojo_testbed::{Direction, Proxy};

use crate::site::{
    LINE, LOCK, NAME, Outcome, PROVISIONAL, Site, WANTS, Waiter, eventually, open, soon, ttl,
};

/// What a busy machine may add.
const SLACK: Duration = Duration::from_secs(3);
/// After how long everybody asks by himself.
const TICK: Duration = cerrojo::backend::redis::TICK;

/// A waiter for each locker, in this order, none of whom asks by itself for a while.
async fn queued(site: &Site, lockers: &[Locker<Redis>], ttl_ms: u64) -> Outcome<Vec<Waiter>> {
    let mut waiters = Vec::new();
    for (count, locks) in (1..).zip(lockers) {
        waiters.push(Waiter::start(locks, ttl(ttl_ms)));
        site.until_waiting(count).await?;
    }
    site.until_at_rest().await?;
    Ok(waiters)
}

async fn lockers(site: &Site, count: usize) -> Outcome<Vec<Locker<Redis>>> {
    let mut lockers = Vec::new();
    for _ in 0..count {
        lockers.push(site.locks().await?);
    }
    Ok(lockers)
}

async fn entered_after(waiter: Waiter, start: Instant) -> Outcome<(ApproximateGuard, Duration)> {
    let (guard, entered) = waiter.entered().await?;
    Ok((guard, entered.since(start)))
}

pub(crate) async fn a_lost_push_is_noticed_by_the_next_in_line_and_by_the_tick(
    site: Site,
) -> Outcome {
    let proxy = Proxy::start(site.server.port())?;
    let deaf = open(&format!("redis://{}", proxy.address())).await?;
    let guard = site.locks().await?.acquire(NAME).await?;
    let mut waiters = queued(&site, &[deaf, site.locks().await?], 30_000).await?;
    let arrived = proxy.counts()?.to_client.arrived;
    proxy.swallow(Direction::ToClient)?;
    let start = Instant::now();
    guard.release().await?;
    proxy.await_counts(SLACK, move |counts| counts.to_client.arrived > arrived)?;
    proxy.flow(Direction::ToClient)?;
    let (guard, delay) = entered_after(waiters.remove(1), start).await?;
    assert!(delay < PROVISIONAL + SLACK, "{delay:?}");
    guard.release().await?;
    let (_, delay) = entered_after(waiters.remove(0), start).await?;
    assert!(delay < TICK + SLACK, "{delay:?}");
    Ok(())
}

pub(crate) async fn a_key_deleted_by_hand_is_noticed_by_the_tick(site: Site) -> Outcome {
    site.hold_silently(60_000)?;
    let mut waiters = queued(&site, &[site.locks().await?], 30_000).await?;
    site.ask(&["DEL", LOCK])?;
    let (_, delay) = entered_after(waiters.remove(0), Instant::now()).await?;
    assert!(delay < TICK + SLACK, "{delay:?}");
    Ok(())
}

pub(crate) async fn the_next_enters_right_after_the_ttl_of_a_silent_holder(site: Site) -> Outcome {
    let lockers = lockers(&site, 2).await?;
    let start = Instant::now();
    site.hold_silently(4_000)?;
    let mut waiters = Vec::new();
    for locks in &lockers {
        waiters.push(Waiter::start(locks, ttl(30_000)));
        site.until_waiting(i64::try_from(waiters.len())?).await?;
    }
    let (guard, after) = entered_after(waiters.remove(0), start).await?;
    assert!(after >= Duration::from_secs(4), "entered after {after:?}");
    assert!(after < Duration::from_secs(4) + SLACK, "entered after {after:?}");
    guard.release().await?;
    drop(waiters.remove(0).entered().await?);
    Ok(())
}

/// Also those far back in the line, who were told to ask much later.
pub(crate) async fn holders_that_crash_one_after_another_cost_one_ttl_each(site: Site) -> Outcome {
    let lockers = lockers(&site, 7).await?;
    site.hold_silently(2_500)?;
    let waiters = queued_at_once(&site, &lockers).await?;
    let end = Instant::now() + Duration::from_millis(2_500);
    let mut entries = Vec::new();
    for waiter in waiters {
        let (guard, entered) = waiter.entered().await?;
        entries.push(entered.since(end));
        guard.detach().await?;
    }
    let each = entries.windows(2).map(|two| two[1] - two[0]);
    assert!(each.max() < Some(SLACK), "entered after {entries:?}");
    Ok(())
}

async fn queued_at_once(site: &Site, lockers: &[Locker<Redis>]) -> Outcome<Vec<Waiter>> {
    let mut waiters = Vec::new();
    for locks in lockers {
        waiters.push(Waiter::start(locks, ttl(300)));
        site.until_waiting(i64::try_from(waiters.len())?).await?;
    }
    Ok(waiters)
}

/// The first ones leave, and with them all who knew when the holder's TTL ends.
pub(crate) async fn who_moves_up_looks_after_the_holder(site: Site) -> Outcome {
    let lockers = lockers(&site, 6).await?;
    site.hold_silently(5_000)?;
    let start = Instant::now();
    let mut waiters = Vec::new();
    for locks in &lockers {
        waiters.push(Waiter::start(locks, ttl(30_000)));
        site.until_waiting(i64::try_from(waiters.len())?).await?;
    }
    let last = waiters.pop().ok_or("nobody waits")?;
    let owner = site.ask(&["ZRANGE", LINE, "-1", "-1"])?.to_string();
    eventually("the last one's second look", || {
        let want = site.ask(&["HGET", WANTS, &owner])?.to_string();
        let numbers: Vec<u64> = want.split(' ').take(2).map_while(|n| n.parse().ok()).collect();
        // A place is kept for 30 s from when it was asked for.
        Ok(numbers[1] + 30_000 > numbers[0] + 2_000)
    })
    .await?;
    waiters.into_iter().for_each(Waiter::abort);
    site.until_waiting(1).await?;
    let (_, after) = entered_after(last, start).await?;
    // By itself it would not have looked a third time before 2 s and half of the tick had passed.
    assert!(after < PROVISIONAL + TICK / 2, "entered after {after:?}");
    Ok(())
}

/// Everybody enters and goes, in any order.
async fn all_enter(waiters: Vec<Waiter>) -> Outcome {
    let mut entering = tokio::task::JoinSet::new();
    for waiter in waiters {
        entering
            .spawn(async move { waiter.entered().await?.0.release().await.map_err(Into::into) });
    }
    while let Some(entered) = soon("all", entering.join_next()).await? {
        let entered: Outcome = entered?;
        entered?;
    }
    Ok(())
}

pub(crate) async fn waiters_that_are_cut_all_enter(site: Site) -> Outcome {
    let proxy = Proxy::start(site.server.port())?;
    let mut cut = Vec::new();
    for _ in 0..10 {
        cut.push(open(&format!("redis://{}", proxy.address())).await?);
    }
    let guard = site.locks().await?.acquire(NAME).await?;
    let waiters = queued(&site, &cut, 30_000).await?;
    proxy.cut()?;
    proxy.await_counts(SLACK * 3, |counts| counts.connections_seen == 20)?;
    guard.release().await?;
    all_enter(waiters).await
}

pub(crate) async fn waiters_of_a_server_restarted_empty_all_enter(site: Site) -> Outcome {
    let guard = site.locks().await?.acquire(NAME).ttl(ttl(3_000)).await?;
    let waiters = queued(&site, &lockers(&site, 10).await?, 30_000).await?;
    site.server.restart_empty()?;
    all_enter(waiters).await?;
    soon("the end of what the server forgot", guard.lost()).await
}
