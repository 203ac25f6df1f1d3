//! The scripts, one by one.

use std::time::Duration;

use cerrojo::{
    Break, ErrorKind, Instant, LockName, OwnerId, Result,
    backend::redis::{Redis, RedisLease},
    spi::{Acquired, Backend, Inspect, Lease, Request},
};

use crate::{
    line::{NAME, PROVISIONAL, Waiter},
    site::{LINE, LOCK, Outcome, Site, WANTS, eventually, ttl},
};

fn name() -> LockName {
    NAME.parse().unwrap()
}

async fn ask(store: &Redis, owner: OwnerId, ttl_ms: u64) -> Result<Option<RedisLease>> {
    let request = Request::new(name(), ttl(ttl_ms)).with_owner(owner);
    match store.acquire(&request).await? {
        Acquired::Granted(lease) => Ok(Some(lease)),
        Acquired::Refused(_) => Ok(None),
    }
}

async fn held(site: &Site, ttl_ms: u64) -> Outcome<(Redis, RedisLease)> {
    let store = Redis::connect(&site.url("")).await?;
    let lease = ask(&store, OwnerId::random(), ttl_ms).await?.ok_or("it is not free")?;
    Ok((store, lease))
}

pub(crate) async fn acquire_is_idempotent_and_sets_the_ttl_anew(site: Site) -> Outcome {
    let (store, mut lease) = held(&site, 5_000).await?;
    let value = site.ask(&["GET", LOCK])?;
    assert!(ask(&store, lease.owner(), 60_000).await?.is_some(), "refused its owner");
    assert_eq!(site.ask(&["GET", LOCK])?, value);
    assert!(site.number(&["PTTL", LOCK])? > 5_000);
    assert!(ask(&store, OwnerId::random(), 60_000).await?.is_none(), "granted to two");
    assert_eq!(site.ask(&["GET", LOCK])?, value);
    lease.release().await?;
    assert_eq!(site.number(&["EXISTS", LOCK, LINE, WANTS])?, 0);
    Ok(())
}

pub(crate) async fn a_broken_lock_is_not_its_owners_any_more(site: Site) -> Outcome {
    let (store, mut lease) = held(&site, 30_000).await?;
    store.break_lock(&name(), Break::AtExpiry).await?.ok_or("nobody held it")?;
    let shown = Inspect::holder(&store, &name()).await?.ok_or("nobody holds it")?;
    assert!(shown.broken, "{shown:?}");
    let renewed = lease.renew().await.map_err(|error| error.kind());
    assert_eq!(renewed, Err(ErrorKind::Lost));
    assert!(ask(&store, lease.owner(), 30_000).await?.is_none(), "granted though broken");
    let waiter = Waiter::start(&site.locks().await?, ttl(30_000));
    site.until_waiting(1).await?;
    lease.release().await?;
    drop(waiter.entered().await?);
    Ok(())
}

pub(crate) async fn a_break_at_expiry_keeps_the_ttl(site: Site) -> Outcome {
    let (store, _lease) = held(&site, 20_000).await?;
    for _ in 0..2 {
        store.break_lock(&name(), Break::AtExpiry).await?.ok_or("nobody held it")?;
        let pttl = site.number(&["PTTL", LOCK])?;
        assert!((1..=20_000).contains(&pttl), "ends in {pttl} ms");
    }
    Ok(())
}

pub(crate) async fn a_break_now_hands_over_to_the_first_waiter(site: Site) -> Outcome {
    let (store, mut lease) = held(&site, 60_000).await?;
    let first = Waiter::start(&site.locks().await?, ttl(30_000));
    site.until_waiting(1).await?;
    let second = Waiter::start(&site.locks().await?, ttl(30_000));
    site.until_waiting(2).await?;
    site.until_at_rest().await?;
    let before = Instant::now();
    store.break_lock(&name(), Break::Now).await?.ok_or("nobody held it")?;
    let (guard, entered) = first.entered().await?;
    assert!(entered.since(before) < PROVISIONAL, "{:?}", entered.since(before));
    assert!(second.is_waiting(), "two at once");
    let value = site.ask(&["GET", LOCK])?.to_string();
    assert!(value.starts_with(&guard.owner().to_hex()), "{value}");
    for answer in [lease.renew().await, lease.release().await] {
        assert_eq!(answer.map_err(|error| error.kind()), Err(ErrorKind::Lost));
    }
    assert_eq!(site.ask(&["GET", LOCK])?.to_string(), value);
    // It is renewed a little later than it is handed out.
    eventually("the whole TTL", || Ok(guard.remaining() > Duration::from_secs(15))).await?;
    guard.release().await?;
    drop(second.entered().await?);
    Ok(())
}
