//! Nobody waits on a free lock, whoever came while it became free.

use crate::{
    session::{Ask, Session, acquire, break_now, release},
    site::{LONG, Outcome, Site, soon, ttl, until},
};

const NAME: &str = "a";
const HOLDER: Ask = Ask { name: NAME, owner: 1, ttl_ms: 60_000, waits: false };
const WAITER: Ask = Ask { owner: 2, waits: true, ..HOLDER };

pub(crate) async fn who_queues_while_the_lock_is_released_is_made_the_owner(site: Site) -> Outcome {
    queues_while(&site, &release(&[HOLDER])).await
}

pub(crate) async fn who_queues_while_the_lock_is_broken_is_made_the_owner(site: Site) -> Outcome {
    queues_while(&site, &break_now(NAME)).await
}

pub(crate) async fn who_asks_while_the_lock_is_released_is_not_left_waiting(site: Site) -> Outcome {
    asks_while(&site, &release(&[HOLDER])).await
}

pub(crate) async fn who_asks_while_the_lock_is_broken_is_not_left_waiting(site: Site) -> Outcome {
    asks_while(&site, &break_now(NAME)).await
}

/// The waiter has the row, and commits when the call that frees the lock has begun.
async fn queues_while(site: &Site, freeing: &str) -> Outcome {
    let (waiter, other, observer) = sessions(site).await?;
    waiter.ask("BEGIN").await?;
    assert_eq!(waiter.ask(&acquire(&[WAITER])).await?, "held");
    let call = other.call(freeing);
    call.settle(&observer).await?;
    waiter.ask("COMMIT").await?;
    if call.answer().await? == "busy" {
        other.until_not_busy(freeing).await?;
    }
    is_handed_over(&observer).await
}

/// What frees the lock has the row, and commits when the waiter has begun to ask.
async fn asks_while(site: &Site, freeing: &str) -> Outcome {
    let (waiter, other, observer) = sessions(site).await?;
    other.ask("BEGIN").await?;
    other.ask(freeing).await?;
    let call = waiter.call(&acquire(&[WAITER]));
    call.settle(&observer).await?;
    other.ask("COMMIT").await?;
    if call.answer().await? == "busy" {
        assert_eq!(waiter.until_not_busy(&acquire(&[WAITER])).await?, "granted");
    }
    is_handed_over(&observer).await
}

async fn sessions(site: &Site) -> Outcome<(Session, Session, Session)> {
    let (waiter, other) = (site.client().await?, site.client().await?);
    assert_eq!(other.ask(&acquire(&[HOLDER])).await?, "granted");
    Ok((waiter, other, site.session().await?))
}

async fn is_handed_over(observer: &Session) -> Outcome {
    assert_eq!(observer.owner(NAME).await?, Some(WAITER.owner));
    assert_eq!(observer.waiting(NAME).await?, 0);
    Ok(())
}

/// The same by the library: its release is under way while somebody's transaction has the row.
pub(crate) async fn a_release_is_asked_again_until_the_row_is_nobodys(site: Site) -> Outcome {
    let (locks, others, somebody) =
        (site.locks().await?, site.locks().await?, site.session().await?);
    let guard = locks.acquire(NAME).await?;
    let token = guard.token();
    let waiter = tokio::spawn(async move { others.acquire(NAME).ttl(ttl(5_000)).wait(LONG).await });
    until("a waiter", async || Ok(somebody.waiting(NAME).await? == 1)).await?;
    somebody.ask("BEGIN; SELECT FROM \"cerrojo\".\"lock\" FOR UPDATE").await?;
    let released = tokio::spawn(guard.release());
    site.until_asked("release").await?;
    assert!(!released.is_finished() && !waiter.is_finished());
    somebody.ask("COMMIT").await?;
    soon("a release", released).await???;
    let next = soon("the waiter", waiter).await???;
    assert!(next.token() > token);
    Ok(next.release().await?)
}

/// News of a hand-over that ended before the waiter's latest request: another has the lock, and the waiter is in the line.
pub(crate) async fn news_from_before_the_latest_request_are_not_taken_for_a_grant(
    site: Site,
) -> Outcome {
    let (locks, others, somebody) =
        (site.locks().await?, site.locks().await?, site.session().await?);
    let guard = locks.acquire(NAME).await?;
    let token = guard.token();
    let waiter = tokio::spawn(async move { others.acquire(NAME).wait(LONG).await });
    let heard = "SELECT count(*) FROM \"cerrojo\".\"lock_waiter\" WHERE channel <> ''";
    until("a waiter that hears", async || Ok(somebody.number(heard).await? == 1)).await?;
    let asked = "SELECT asked FROM \"cerrojo\".\"lock_waiter\"";
    let before = somebody.number(asked).await?;
    somebody
        .ask(
            "SELECT pg_notify(channel, concat_ws(' ', 'granted', 2000, asked - 1, 7, replace(owner::text, '-', '')))
             FROM \"cerrojo\".\"lock_waiter\"",
        )
        .await?;
    until("a request", async || Ok(somebody.number(asked).await? > before)).await?;
    assert!(!waiter.is_finished());
    guard.release().await?;
    let next = soon("the waiter", waiter).await???;
    assert!(next.token() > token);
    Ok(next.release().await?)
}
