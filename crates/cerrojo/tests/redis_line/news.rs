//! News that nobody tells: a lost push, a key that is gone, a holder that is silent, a server that was away.

use cerrojo::Instant;
use cerrojo_testbed::Proxy;

use crate::{
    line::{NAME, PROVISIONAL, SLACK, TICK, Waiter, all_enter, queued},
    site::{LINE, Outcome, Site, WANTS, eventually, soon, ttl},
};

pub(crate) use crate::line::news::{
    holders_that_crash_one_after_another_cost_one_ttl_each,
    lost_news_are_noticed_by_the_next_in_line_and_by_the_tick as a_lost_push_is_noticed_by_the_next_in_line_and_by_the_tick,
    the_next_enters_right_after_the_ttl_of_a_silent_holder,
    what_is_freed_by_hand_is_noticed_by_the_tick as a_key_deleted_by_hand_is_noticed_by_the_tick,
};

/// The first ones leave, and with them all who knew when the holder's TTL ends.
pub(crate) async fn who_moves_up_looks_after_the_holder(site: Site) -> Outcome {
    let lockers = site.lockers(6).await?;
    site.hold_silently(5_000).await?;
    let start = Instant::now();
    let mut waiters = queued(&site, &lockers, 30_000).await?;
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
    let (_, after) = last.entered_after(start).await?;
    // By itself it would not have looked a third time before 2 s and half of the tick had passed.
    assert!(after < PROVISIONAL + TICK / 2, "entered after {after:?}");
    Ok(())
}

pub(crate) async fn waiters_that_are_cut_all_enter(site: Site) -> Outcome {
    let proxy = Proxy::start(site.server.port())?;
    let mut cut = Vec::new();
    for _ in 0..10 {
        cut.push(site.locks_that_listen_at(proxy.port()).await?);
    }
    let guard = site.locks().await?.acquire(NAME).await?;
    let waiters = queued(&site, &cut, 30_000).await?;
    site.until_at_rest().await?;
    proxy.cut()?;
    proxy.await_counts(SLACK * 3, |counts| counts.connections_seen == 20)?;
    guard.release().await?;
    all_enter(waiters).await
}

pub(crate) async fn waiters_of_a_server_restarted_empty_all_enter(site: Site) -> Outcome {
    let guard = site.locks().await?.acquire(NAME).ttl(ttl(3_000)).await?;
    let waiters = queued(&site, &site.lockers(10).await?, 30_000).await?;
    site.until_at_rest().await?;
    site.server.restart_empty()?;
    all_enter(waiters).await?;
    soon("the end of what the server forgot", guard.lost()).await
}
