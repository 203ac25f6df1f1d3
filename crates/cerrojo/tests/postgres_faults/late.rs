//! Replies that are lost, and requests that come when nobody wants them any more.

use cerrojo::{ErrorKind, LeaseState, clock};
use cerrojo_testbed::Direction;
use libtest_mimic::Trial;

use crate::site::{
    LONG, Locks, OnServer, Outcome, Shared, Site, connect, eventually, goes_on, is_lost, kind,
    millis, trial, ttl, until, waiter, works,
};

pub(crate) fn trials(shared: &Shared) -> Vec<Trial> {
    vec![
        shared.trial("a_grant_whose_reply_is_lost_is_found_again_with_its_token", lost_grant),
        shared.trial("a_renewal_whose_reply_is_lost_is_made_again", lost_renewal),
        shared.trial("a_release_whose_reply_is_lost_is_unknown_and_the_lock_is_free", lost_release),
        shared.trial("a_lock_that_is_handed_over_without_a_word_is_found_by_its_waiter", lost_word),
        shared.trial("a_grant_whose_reply_is_late_is_given_back", late_reply),
        shared.trial("a_request_that_comes_late_does_nothing", late_request),
        trial("a_request_that_a_stopped_server_did_not_read_in_time_does_nothing", unread_request),
        trial(
            "a_holder_whose_server_was_stopped_past_its_ttl_is_followed_by_the_waiter",
            stopped_in_line,
        ),
    ]
}

/// Whose connections are there.
async fn warm(site: &Site) -> cerrojo::Result<Locks> {
    let locks = site.locks().await?;
    locks.acquire("other").wait(LONG).await?.release().await?;
    Ok(locks)
}

/// What the server has said meanwhile never arrives.
fn lose_replies(site: &Site) -> std::io::Result<()> {
    site.proxy.cut()?;
    site.proxy.heal()
}

async fn lost_grant(site: Site) -> Outcome {
    let locks = warm(&site).await?;
    site.proxy.hold(Direction::ToClient)?;
    let waiting = waiter(locks, "a", 60_000);
    until("the grant", async || site.is_held("a").await).await?;
    let token = site.token("a").await?;
    lose_replies(&site)?;
    let guard = waiting.await??;
    assert_eq!(i64::try_from(guard.token().get())?, token);
    Ok(guard.release().await?)
}

async fn lost_renewal(site: Site) -> Outcome {
    let locks = warm(&site).await?;
    let guard = locks.acquire("a").ttl(ttl(9_000)).await?;
    let before = site.end_us("a").await?;
    site.proxy.hold(Direction::ToClient)?;
    until("a renewal", async || Ok(site.end_us("a").await? != before)).await?;
    assert_eq!(guard.renewals(), 0, "it does not know");
    lose_replies(&site)?;
    goes_on(&guard).await?;
    assert_eq!(i64::try_from(guard.token().get())?, site.token("a").await?);
    Ok(guard.release().await?)
}

async fn lost_release(site: Site) -> Outcome {
    let locks = warm(&site).await?;
    let guard = locks.acquire("a").ttl(ttl(60_000)).await?;
    site.proxy.hold(Direction::ToClient)?;
    let releasing = tokio::spawn(guard.release());
    until("a free lock", async || Ok(!site.is_held("a").await?)).await?;
    lose_replies(&site)?;
    assert_eq!(kind(releasing.await?), Some(ErrorKind::Indeterminate));
    let next = site.direct().await?.try_acquire("a").await?;
    next.release().await?;
    works(&locks, "a").await
}

/// It is the waiter's for no longer than 2 s unless it asks; nobody tells it to.
async fn lost_word(site: Site) -> Outcome {
    let (locks, others) = (warm(&site).await?, site.direct().await?);
    let holder = others.acquire("a").ttl(ttl(60_000)).await?;
    let waiting = waiter(locks, "a", 60_000);
    site.until_waiting("a", 1).await?;
    site.proxy.hold(Direction::ToClient)?;
    holder.release().await?;
    assert_eq!(site.waiting("a").await?, 0, "handed over in the same commit");
    lose_replies(&site)?;
    let guard = waiting.await??;
    assert!(guard.state() != LeaseState::Lost && guard.remaining() > millis(0));
    is_whole(&guard).await?;
    Ok(guard.release().await?)
}

async fn is_whole(guard: &cerrojo::FencedGuard) -> Outcome {
    eventually("the whole TTL", || Ok(guard.remaining() > millis(30_000))).await
}

async fn late_reply(site: Site) -> Outcome {
    let (locks, others) = (warm(&site).await?, site.direct().await?);
    site.proxy.delay(Direction::ToClient, millis(1_200))?;
    let answer = kind(locks.try_acquire("a").ttl(ttl(60_000)).await);
    assert_eq!(answer, Some(ErrorKind::Indeterminate));
    until("a free lock", async || Ok(!site.is_held("a").await?)).await?;
    site.proxy.heal()?;
    let guard = others.acquire("a").ttl(ttl(60_000)).wait(LONG).await?;
    Ok(guard.release().await?)
}

async fn late_request(site: Site) -> Outcome {
    let (locks, others) = (warm(&site).await?, site.direct().await?);
    let before = site.proxy.counts()?;
    site.proxy.hold(Direction::ToServer)?;
    let answer = kind(locks.try_acquire("a").ttl(ttl(60_000)).await);
    assert_eq!(answer, Some(ErrorKind::Indeterminate));
    let held = site.proxy.counts()?;
    assert!(held.to_server.arrived > before.to_server.arrived, "nothing was sent");
    site.proxy.heal()?;
    let arrived = held.to_server.arrived;
    site.proxy.await_counts(LONG, move |now| now.to_server.passed >= arrived)?;
    never_granted(&site, &locks, &others).await
}

/// What was sent before comes to nothing, and all that comes after works.
async fn never_granted(site: &Site, locks: &Locks, others: &Locks) -> Outcome {
    works(locks, "b").await?;
    let active = "state = 'active' AND application_name =";
    let active = format!("SELECT count(*) FROM pg_stat_activity WHERE {active} '{}'", site.table);
    until("nobody at work", async || Ok(site.number(&active).await? == 0)).await?;
    assert!(site.token("a").await? == 0, "granted too late");
    Ok(others.try_acquire("a").await?.release().await?)
}

async fn unread_request() -> Outcome {
    let site = Site::alone().await?;
    let (locks, others) = (warm(&site).await?, site.direct().await?);
    site.server.freeze()?;
    let answer = kind(locks.try_acquire("a").ttl(ttl(60_000)).await);
    assert_eq!(answer, Some(ErrorKind::Indeterminate));
    site.server.thaw()?;
    never_granted(&site, &locks, &others).await
}

/// The holder's time runs out while the server is stopped.
async fn stopped_in_line() -> Outcome {
    let site = Site::alone().await?;
    let url = site.url("call_limit_ms=10000");
    let (locks, waits) = (connect(&url).await?, connect(&url).await?);
    let holder = locks.acquire("a").ttl(ttl(2_000)).wait(LONG).await?;
    let waiting = waiter(waits, "a", 5_000);
    site.until_waiting("a", 1).await?;
    site.server.freeze()?;
    is_lost(&holder).await?;
    clock::sleep(millis(1_000)).await;
    site.server.thaw()?;
    let next = waiting.await??;
    assert!(next.token() > holder.token());
    assert_eq!(kind(holder.release().await), Some(ErrorKind::Lost));
    goes_on(&next).await?;
    Ok(next.release().await?)
}
