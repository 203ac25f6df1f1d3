//! Until when a grant may be acted on, beside what the server itself says.

use std::time::Duration;

use cerrojo::clock;
use cerrojo_testbed::{Direction, Proxy};

use super::{NAME, Waiter};
use crate::site::{Held, Outcome, Site, soon, ttl, until};

/// Looks many times, over several renewals, whether the guard trusts its lease longer than the server keeps it.
async fn check(site: &Site, guard: &Held) -> Outcome {
    let mut looks = 0;
    while looks < 100 || guard.renewals() < 2 {
        let renewals = guard.renewals();
        let kept = site.kept().await?;
        let remaining = guard.remaining();
        if guard.renewals() == renewals {
            assert!(remaining <= kept, "{remaining:?}, but the server says {kept:?}");
            looks += 1;
        }
        clock::sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}

/// The waiter enters with a good part of this TTL left, and trusts it no longer than it may.
async fn enters_validly(site: &Site, waiter: Waiter, ttl: Duration) -> Outcome {
    let (guard, _) = waiter.entered().await?;
    assert!(guard.remaining() > ttl / 5, "{:?}", guard.remaining());
    check(site, &guard).await?;
    Ok(guard.release().await?)
}

pub(crate) async fn a_direct_grant_is_never_valid_beyond_the_servers_expiry(site: Site) -> Outcome {
    let guard = site.locks().await?.acquire(NAME).ttl(ttl(2_000)).await?;
    check(&site, &guard).await?;
    Ok(guard.release().await?)
}

pub(crate) async fn a_grant_handed_over_after_3_ttls_is_never_valid_beyond_the_servers_expiry(
    site: Site,
) -> Outcome {
    let ttl = ttl(1_000);
    let guard = site.locks().await?.acquire(NAME).ttl(ttl).await?;
    let waiter = Waiter::start(&site.locks().await?, ttl);
    site.until_waiting(1).await?;
    clock::sleep(ttl.get() * 3).await;
    assert!(waiter.is_waiting(), "entered while it was held");
    guard.release().await?;
    enters_validly(&site, waiter, ttl.get()).await
}

/// The news come when more than half of the TTL is over.
pub(crate) async fn late_news_are_never_valid_beyond_the_servers_expiry(site: Site) -> Outcome {
    let (ttl, proxy) = (ttl(1_500), Proxy::start(site.server.port())?);
    let guard = site.locks().await?.acquire(NAME).await?;
    let waiter = Waiter::start(&site.locks_that_listen_at(proxy.port()).await?, ttl);
    site.until_waiting(1).await?;
    site.until_at_rest().await?;
    proxy.hold(Direction::ToClient)?;
    guard.release().await?;
    clock::sleep(ttl.get() * 3 / 4).await;
    proxy.heal()?;
    enters_validly(&site, waiter, ttl.get()).await
}

pub(crate) async fn news_held_for_2_ttls_give_a_fresh_and_exclusive_guard(site: Site) -> Outcome {
    let (ttl, proxy) = (ttl(600), Proxy::start(site.server.port())?);
    let late = site.locks_that_listen_at(proxy.port()).await?;
    let others = site.locks().await?;
    for somebody_enters in [false, true] {
        let guard = others.acquire(NAME).await?;
        let waiter = Waiter::start(&late, ttl);
        site.until_waiting(1).await?;
        site.until_at_rest().await?;
        proxy.hold(Direction::ToClient)?;
        guard.release().await?;
        let free = async || Ok(site.owner().await?.is_none());
        until("the end of what was handed over", free).await?;
        let other = match somebody_enters {
            true => Some(others.acquire(NAME).ttl(ttl).await?),
            false => None,
        };
        clock::sleep(ttl.get()).await;
        proxy.heal()?;
        if let Some(other) = other {
            let early = clock::within(ttl.get() * 2, until_done(&waiter)).await;
            assert!(early.is_err(), "two at once");
            other.release().await?;
        }
        let (guard, _) = soon("the late one", waiter.entered()).await??;
        assert!(guard.remaining() > ttl.get() / 5, "{:?}", guard.remaining());
        assert_eq!(site.owner().await?, Some(guard.owner().to_hex()));
        guard.release().await?;
    }
    Ok(())
}

async fn until_done(waiter: &Waiter) {
    while waiter.is_waiting() {
        clock::sleep(Duration::from_millis(10)).await;
    }
}
