//! News that nobody tells: a lost notification, a row changed by hand, a holder that is silent, a server that was away.

use std::time::Duration;

use cerrojo::{Instant, clock};
use cerrojo_testbed::{Direction, Proxy};

use crate::{
    line::{NAME, PROVISIONAL, SLACK, Waiter, all_enter, queued},
    site::{OnServer, Outcome, Site, open, release, ttl, until},
};

pub(crate) use crate::line::news::{
    holders_that_crash_one_after_another_cost_one_ttl_each,
    lost_news_are_noticed_by_the_next_in_line_and_by_the_tick as a_lost_notification_is_noticed_by_the_next_in_line_and_by_the_tick,
    the_next_enters_right_after_the_ttl_of_a_silent_holder,
    what_is_freed_by_hand_is_noticed_by_the_tick as a_row_freed_by_hand_is_noticed_by_the_tick,
};

/// The first ones leave, and with them all who knew when the holder's TTL ends.
pub(crate) async fn who_moves_up_looks_after_the_holder(site: Site) -> Outcome {
    let lockers = site.lockers(6).await?;
    site.hold_silently(6_000).await?;
    let start = Instant::now();
    let mut waiters = queued(&site, &lockers, 30_000).await?;
    let last = waiters.pop().ok_or("nobody waits")?;
    // A place is kept for 30 s from when it was asked for; the first time a waiter is told to ask again within 2 s.
    let calm = "SELECT count(*) FROM LOCK_waiter \
        WHERE place = (SELECT max(place) FROM LOCK_waiter) AND channel <> '' \
        AND wake_at > alive_until - interval '30 s' + interval '2 s'";
    let looked = async || Ok(site.number(calm).await? == 1);
    until("the last one's second look", looked).await?;
    waiters.into_iter().for_each(Waiter::abort);
    site.until_waiting(1).await?;
    let (guard, after) = last.entered_after(start).await?;
    // By itself it would not have looked again before half of the tick had passed, and often not before all of it.
    assert!(after < Duration::from_secs(6) + SLACK, "entered after {after:?}");
    Ok(guard.release().await?)
}

/// The least of when the waiters asked last, by their own clock; none while one of them cannot hear.
async fn asked(site: &Site) -> Outcome<Option<i64>> {
    let asked = "SELECT min(asked) FROM LOCK_waiter HAVING min(channel) <> ''";
    let asked = site.look(asked).await?.pop();
    Ok(asked.and_then(|asked| asked.parse().ok()))
}

/// Waits until all in the line have asked since then, and hear.
async fn until_asked_since(site: &Site, start: Instant) -> Outcome {
    let start = i64::try_from(start.as_nanos())?;
    until("all ask", async || Ok(asked(site).await? > Some(start))).await
}

pub(crate) async fn who_listens_anew_asks_once_and_is_told_again(site: Site) -> Outcome {
    let guard = site.locks().await?.acquire(NAME).await?;
    let (came, lockers) = (Instant::now(), site.lockers(5).await?);
    let mut waiters = queued(&site, &lockers, 30_000).await?;
    site.until_at_rest().await?;
    for _ in 0..3 {
        let start = Instant::now();
        assert!(site.deafen()? >= 5);
        until_asked_since(&site, start).await?;
    }
    site.until_at_rest().await?;
    let start = Instant::now();
    guard.release().await?;
    let (guard, delay) = waiters.remove(0).entered_after(start).await?;
    // Nobody asks by itself so early: it was told.
    assert!(delay < PROVISIONAL, "{delay:?}");
    guard.release().await?;
    all_enter(waiters).await?;
    drop(lockers);
    until("no connection", async || Ok(site.connections().await? == 0)).await?;
    // Each time they were deaf they may have polled a little; else they would have asked ten times a second.
    let (asked, passed) = (site.calls("join").await?, Instant::now().since(came).as_secs());
    let each_max = i64::try_from(20 + passed / 5)?;
    assert!(asked <= 5 * each_max, "{asked} requests of 5 waiters in {passed} s");
    Ok(())
}

/// The lock is handed over, and ends, while the first in line cannot hear.
pub(crate) async fn what_happened_while_nobody_listened_is_found(site: Site) -> Outcome {
    let proxy = Proxy::start(site.server.port())?;
    let lockers = [site.locks_that_listen_at(proxy.port()).await?];
    let guard = site.locks().await?.acquire(NAME).await?;
    let waiter = queued(&site, &lockers, 30_000).await?.remove(0);
    site.until_at_rest().await?;
    proxy.refuse()?;
    proxy.hold(Direction::ToClient)?;
    let arrived = proxy.counts()?.to_client.arrived;
    guard.release().await?;
    proxy.await_counts(SLACK, move |counts| counts.to_client.arrived > arrived)?;
    let start = Instant::now();
    // What was held is lost with the connection.
    proxy.reset()?;
    let (guard, delay) = waiter.entered_after(start).await?;
    assert!(delay < PROVISIONAL, "{delay:?}");
    guard.release().await?;
    // It goes on without ears, and gets them back.
    let guard = site.locks().await?.acquire(NAME).await?;
    let waiter = queued(&site, &lockers, 30_000).await?.remove(0);
    proxy.accept()?;
    proxy.heal()?;
    site.until_at_rest().await?;
    guard.release().await?;
    Ok(waiter.entered().await?.0.release().await?)
}

pub(crate) async fn waiters_that_are_cut_all_enter(site: Site) -> Outcome {
    let proxy = Proxy::start(site.server.port())?;
    let mut cut = Vec::new();
    for _ in 0..10 {
        cut.push(open(&site.url_at(proxy.port(), "")).await?);
    }
    let guard = site.locks().await?.acquire(NAME).await?;
    let waiters = queued(&site, &cut, 30_000).await?;
    site.until_at_rest().await?;
    let start = Instant::now();
    proxy.cut()?;
    until_asked_since(&site, start).await?;
    guard.release().await?;
    all_enter(waiters).await
}

pub(crate) async fn waiters_of_a_server_that_was_restarted_enter_in_order(site: Site) -> Outcome {
    drop(site);
    let site = Site::alone().await?;
    let guard = site.locks().await?.acquire(NAME).ttl(ttl(20_000)).await?;
    let waiters = queued(&site, &site.lockers(5).await?, 20_000).await?;
    site.until_at_rest().await?;
    site.server.restart()?;
    let mut guard = guard;
    for waiter in waiters {
        let token = guard.token();
        clock::sleep(Duration::from_millis(20)).await;
        assert!(waiter.is_waiting(), "two at once");
        release(guard).await?;
        (guard, _) = waiter.entered().await?;
        assert!(guard.token() > token, "{:?} after {token:?}", guard.token());
    }
    Ok(guard.release().await?)
}
