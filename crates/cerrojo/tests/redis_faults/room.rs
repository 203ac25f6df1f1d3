//! A server whose memory is full.

use cerrojo::{ErrorKind, LeaseState};
use cerrojo_testbed::RedisServer;
use libtest_mimic::Trial;

use crate::site::{
    LONG, Outcome, Site, check_error, eventually, goes_on, is_lost, kind, trial, ttl, works,
};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("a_lock_that_is_evicted_is_lost_with_a_clear_error", evicted),
        trial("full_memory_is_told_while_what_is_held_goes_on", full),
    ]
}

/// Writes other keys until this one is gone.
fn push_out(site: &Site, key: &str) -> Outcome {
    let (mut client, value) = (site.server.client()?, "x".repeat(100_000));
    for number in 0..10_000 {
        client.command(&["SET", &format!("filler-{number}"), &value])?;
        if client.command(&["EXISTS", key])? == "0" {
            return Ok(());
        }
    }
    Err("never full".into())
}

async fn evicted() -> Outcome {
    let builder = RedisServer::builder().option("maxmemory", "8mb");
    let site = Site::of(&builder.option("maxmemory-policy", "allkeys-lru"))?;
    let locks = site.locks().await?;
    let guard = locks.acquire("a").ttl(ttl(15_000)).await?;
    let until = guard.valid_until();
    push_out(&site, "cerrojo:{a}")?;
    let (name, owner) = (guard.name().clone(), guard.owner());
    let refused = locks.resume(&name, owner, ttl(15_000)).await.unwrap_err();
    check_error(&refused, &[ErrorKind::Lost], &["`a`", "not held by this owner any more"])?;
    assert_eq!(guard.valid_until(), until, "its own renewal is yet to come");
    is_lost(&guard).await?;
    assert_eq!(kind(guard.release().await), Some(ErrorKind::Lost));
    site.server.command(&["FLUSHALL"])?;
    works(&locks, "a").await
}

async fn full() -> Outcome {
    let site = Site::start()?;
    let locks = site.locks().await?;
    let held = locks.acquire("held").ttl(ttl(3_000)).await?;
    let given_back = locks.acquire("given-back").ttl(ttl(60_000)).await?;
    let waiting = {
        let locks = site.locks().await?;
        tokio::spawn(async move { locks.acquire("held").ttl(ttl(3_000)).wait(LONG).await })
    };
    eventually("a waiter", || site.has_key("cerrojo:{held}:line")).await?;
    site.server.command(&["CONFIG", "SET", "maxmemory", "500kb"])?;
    let refused = locks.try_acquire("new").await.unwrap_err();
    let words = ["memory is full", "never let it evict locks", &site.proxy.address()];
    check_error(&refused, &[ErrorKind::Unavailable], &words)?;
    goes_on(&held).await?;
    given_back.release().await?;
    // Handing it over may need room: it is free, or the waiter's, at the latest when there is some again.
    drop(held.release().await);
    site.server.command(&["CONFIG", "SET", "maxmemory", "0"])?;
    let entered = waiting.await??;
    goes_on(&entered).await?;
    assert_eq!(entered.state(), LeaseState::Held);
    entered.release().await?;
    works(&locks, "new").await
}
