//! A primary and its standby: failover under a running client.

use std::sync::Arc;

use cerrojo::{ErrorKind, LeaseState};
use cerrojo_testbed::PostgresServer;
use libtest_mimic::Trial;

use crate::{
    refused::refused,
    site::{
        LONG, OnServer, Outcome, ROLE, Site, connect, goes_on, is_lost, kind, trial, ttl,
        until_told, waiter, works,
    },
};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("a_standby_is_told_when_connecting", told),
        trial("with_both_hosts_a_failover_is_unavailable_and_then_works_by_itself", both_hosts),
        trial("behind_one_name_a_failover_is_unavailable_and_then_works_by_itself", one_name),
    ]
}

async fn pair() -> Outcome<(Site, PostgresServer)> {
    let site = Site::alone().await?;
    let standby = Site::builder().standby_of(&site.server).start()?;
    standby.await_caught_up(&site.server)?;
    Ok((site, standby))
}

async fn told() -> Outcome {
    let (site, standby) = pair().await?;
    let address = standby.address();
    let words = [address.as_str(), "it is a standby", "name the primary"];
    refused(&site.url_of(ROLE, &address, ""), ErrorKind::Invalid, &words).await?;
    let both = format!("{address},{}", site.server.address());
    works(&connect(&site.url_of(ROLE, &both, "")).await?, "a").await
}

async fn both_hosts() -> Outcome {
    let (site, standby) = pair().await?;
    let both = format!("{},{}", site.server.address(), standby.address());
    let url = site.url_of(ROLE, &both, "call_limit_ms=500");
    let (locks, waits) = (connect(&url).await?, connect(&url).await?);
    let guard = locks.acquire("a").ttl(ttl(2_000)).wait(LONG).await?;
    let waiting = waiter(waits, "a", 3_000);
    site.until_waiting("a", 1).await?;
    standby.await_caught_up(&site.server)?;
    site.server.kill()?;
    is_lost(&guard).await?;
    until_told(&locks, ErrorKind::Unavailable, &[&both]).await?;
    standby.promote()?;
    let next = waiting.await??;
    assert!(next.token() > guard.token(), "{:?} after {:?}", next.token(), guard.token());
    assert_eq!(next.store_id(), guard.store_id());
    goes_on(&next).await?;
    next.release().await?;
    works(&locks, "a").await
}

/// As with a floating address or a name service.
async fn one_name() -> Outcome {
    let (mut site, standby) = pair().await?;
    let locks = site.locks().await?;
    let guard = locks.acquire("a").ttl(ttl(60_000)).wait(LONG).await?;
    standby.await_caught_up(&site.server)?;
    site.proxy.lead_to(standby.port())?;
    site.server.kill()?;
    until_told(&locks, ErrorKind::Unavailable, &["it is a standby"]).await?;
    standby.promote()?;
    site.server = Arc::new(standby);
    let next = locks.acquire("b").ttl(ttl(60_000)).wait(LONG).await?;
    assert!(next.token() > guard.token());
    assert_eq!(kind(locks.try_acquire("a").await), Some(ErrorKind::Contended));
    assert_eq!(guard.state(), LeaseState::Held);
    guard.release().await?;
    next.release().await?;
    works(&locks, "a").await
}
