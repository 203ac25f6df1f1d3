//! What stays in the store.

use std::time::Duration;

use super::super::{
    Harness,
    case::{Verdict, check},
    site::{PATIENCE, Site, granted, job},
};
use crate::{
    LeaseState, clock,
    spi::{Inspect, Lease, Request},
};

pub(super) async fn nothing_is_left_after_the_ttl<H: Harness>(site: Site<H>) -> Verdict {
    let (backend, locker) = (site.backend().await?, site.locker().await?);
    let mut silent = Vec::new();
    for number in 0..5 {
        let name = format!("silent/{number}").parse()?;
        silent.push(granted(&backend, &Request::new(name, site.short_ttl())).await?);
        locker.acquire(format!("released/{number}")).await?.release().await?;
        let late = locker.acquire(format!("silent/{number}")).wait(Duration::from_millis(10)).await;
        check!(late.is_err() || !silent.is_empty(), "entered beside a silent holder");
    }
    let last = silent.iter().map(|lease| lease.counted_from() + lease.ttl().get()).max();
    // By the store's clock the TTL began a little after ours did.
    clock::sleep_until(last.unwrap_or(crate::Instant::now()) + Duration::from_secs(2)).await;
    let left = backend.list(None, 100).await?;
    check!(left.is_empty(), "left behind: {left:?}");
    backend.prune().await?;
    check!(backend.prune().await? == 0, "a prune left something for the next one");
    check!(backend.list(None, 100).await?.is_empty(), "a prune made a holder");
    Ok(())
}

pub(super) async fn prune_leaves_what_is_held<H: Harness>(site: Site<H>) -> Verdict {
    let (locker, other) = (site.locker().await?, site.locker().await?);
    let guard = locker.acquire(job()?).ttl(site.short_ttl()).await?;
    for number in 0..20 {
        locker.acquire(format!("released/{number}")).await?.release().await?;
    }
    other.prune().await?;
    check!(other.try_acquire(job()?).await.is_err(), "a prune freed a held lock");
    let renewed = guard.renewals();
    let held = guard.run(clock::sleep(site.short_ttl().get() * 2)).await;
    check!(held.is_ok() && guard.renewals() > renewed, "not renewed after a prune");
    check!(guard.state() == LeaseState::Held, "the state is {:?}", guard.state());
    guard.release().await?;
    other.acquire(job()?).wait(PATIENCE).await?.release().await?;
    Ok(())
}
