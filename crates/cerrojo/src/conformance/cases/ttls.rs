//! The range of TTLs.

use std::time::Duration;

use super::super::{
    Harness,
    case::{Verdict, check},
    site::{Site, enter, granted, job},
};
use crate::{
    Instant, Ttl,
    spi::{Lease, Request},
};

pub(super) async fn the_edges_are_granted<H: Harness>(site: Site<H>) -> Verdict {
    let backend = site.backend().await?;
    for (name, ttl) in [("shortest", site.can().ttl_min), ("longest", site.can().ttl_max)] {
        let mut lease = granted(&backend, &Request::new(name.parse()?, ttl)).await?;
        check!(lease.ttl() == ttl, "{ttl:?} was asked for, {:?} granted", lease.ttl());
        // A TTL of some milliseconds may have ended by now.
        drop(lease.release().await);
    }
    let locker = site.locker().await?;
    let guard = locker.acquire(job()?).ttl(site.can().ttl_max).await?;
    let most = site.can().ttl_max.get();
    check!(guard.remaining() > most * 9 / 10, "{:?} of {most:?} are left", guard.remaining());
    guard.release().await?;
    Ok(())
}

pub(super) async fn what_is_beyond_the_edges_cannot_be_asked<H: Harness>(site: Site<H>) -> Verdict {
    let beyond = [
        Duration::ZERO,
        Duration::from_nanos(1),
        Duration::from_micros(10_500),
        Ttl::MIN.get() - Duration::from_millis(1),
        Ttl::MAX.get() + Duration::from_millis(1),
        Duration::MAX,
    ];
    for length in beyond {
        check!(Ttl::try_from(length).is_err(), "{length:?} is a TTL");
    }
    check!(Ttl::secs(u64::MAX).is_err() && Ttl::millis(u64::MAX).is_err(), "an overflow is a TTL");
    check!(site.can().ttl_min >= Ttl::MIN && site.can().ttl_max <= Ttl::MAX, "wider than TTLs are");
    Ok(())
}

pub(super) async fn the_shortest_ttl_ends<H: Harness>(site: Site<H>) -> Verdict {
    let backend = site.backend().await?;
    let lease = granted(&backend, &Request::new(job()?, site.can().ttl_min)).await?;
    let end = lease.counted_from() + lease.ttl().get();
    let (guard, entered) = enter(&site.locker().await?, &job()?, site.long_ttl()).await?;
    check!(entered >= end, "entered {:?} before the TTL ended", end.since(entered));
    guard.release().await?;
    Ok(())
}

pub(super) async fn validity_is_never_longer_than_the_ttl<H: Harness>(site: Site<H>) -> Verdict {
    let locker = site.locker().await?;
    for ttl in [site.short_ttl(), Ttl::default().min(site.can().ttl_max), site.long_ttl()] {
        let guard = locker.acquire(job()?).ttl(ttl).await?;
        let (now, until) = (Instant::now(), guard.valid_until());
        let bounded = until.is_some_and(|until| until.since(now) < ttl.get());
        check!(bounded, "{ttl:?} is valid for {:?}", until.map(|until| until.since(now)));
        guard.release().await?;
    }
    Ok(())
}
