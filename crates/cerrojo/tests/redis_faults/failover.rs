//! A replica that becomes the master under a held lock.

use cerrojo::{ErrorKind, LeaseState, clock};
use cerrojo_testbed::{Direction, Proxy, RedisServer, Sentinels};
use libtest_mimic::Trial;

use crate::site::{
    LONG, Outcome, Site, connect, eventually, goes_on, is_lost, kind, millis, trial, ttl, works,
};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("a_grant_that_the_promoted_replica_has_is_still_held", replicated),
        trial("a_grant_that_the_promoted_replica_lacks_is_lost_at_the_next_renewal", unreplicated),
        trial("sentinels_fail_over_under_a_held_lock_and_waiters_enter", by_sentinels),
    ]
}

async fn replicated() -> Outcome {
    let (site, replica) = (Site::start()?, RedisServer::start()?);
    replica.replica_of(&site.server)?;
    let (locks, others) = (site.locks().await?, site.locks().await?);
    let guard = locks.acquire("a").ttl(ttl(10_000)).await?;
    replica.await_sync(&site.server)?;
    site.server.kill()?;
    replica.promote()?;
    site.proxy.lead_to(replica.port())?;
    assert_eq!(kind(others.acquire("a").wait(millis(2_000)).await), Some(ErrorKind::Contended));
    goes_on(&guard).await?;
    guard.release().await?;
    works(&others, "a").await
}

/// Two at once are possible then; the first is told at its next renewal, and the second goes on.
async fn unreplicated() -> Outcome {
    let (site, replica) = (Site::start()?, RedisServer::start()?);
    let line = Proxy::start(site.server.port())?;
    replica.command(&["REPLICAOF", "127.0.0.1", &line.port().to_string()])?;
    replica.await_sync(&site.server)?;
    let (locks, others) = (site.locks().await?, site.locks().await?);
    line.hold(Direction::ToClient)?;
    let guard = locks.acquire("a").ttl(ttl(9_000)).await?;
    let until = guard.valid_until().ok_or("lost at once")?;
    site.server.kill()?;
    replica.promote()?;
    site.proxy.lead_to(replica.port())?;
    let second = others.acquire("a").ttl(ttl(9_000)).wait(LONG).await?;
    assert_eq!(guard.state(), LeaseState::Held, "two hold it: the docs say so");
    clock::until(until, guard.lost()).await?;
    is_lost(&guard).await?;
    goes_on(&second).await?;
    assert_eq!(kind(guard.release().await), Some(ErrorKind::Lost));
    Ok(second.release().await?)
}

async fn by_sentinels() -> Outcome {
    let all = Sentinels::start()?;
    let addresses: Vec<_> = all.sentinels().iter().map(RedisServer::address).collect();
    let url =
        format!("redis+sentinel://{}/{}?call_limit_ms=1000", addresses.join(","), Sentinels::NAME);
    let (locks, others) = (connect(&url).await?, connect(&url).await?);
    let [master, replica] = all.servers();
    let guard = locks.acquire("a").ttl(ttl(20_000)).await?;
    let waiting =
        tokio::spawn(async move { others.acquire("a").ttl(ttl(20_000)).wait(LONG).await });
    eventually("a waiter", || Ok(master.command(&["EXISTS", "cerrojo:{a}:line"])? == "1")).await?;
    replica.await_sync(master)?;
    // Stopped, not killed: nothing ends the connections to it.
    master.freeze()?;
    all.await_failover(&master.address())?;
    goes_on(&guard).await?;
    assert!(!waiting.is_finished(), "two hold it");
    guard.release().await?;
    let next = waiting.await??;
    goes_on(&next).await?;
    Ok(next.release().await?)
}
