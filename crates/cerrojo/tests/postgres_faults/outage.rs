//! Servers and networks that go away and come back.

use cerrojo::{ErrorKind, clock};
use cerrojo_testbed::Direction;
use libtest_mimic::Trial;

use crate::{
    faults::{self, hold, lost_on_time, refuse},
    site::{
        LONG, Locks, OnServer, Outcome, Shared, Site, check_error, goes_on, kind, millis, trial,
        ttl, until, waiter, works,
    },
};

pub(crate) fn trials(shared: &Shared) -> Vec<Trial> {
    vec![
        shared.trial("held_bytes_for_two_ttls_lose_the_lock_on_time_and_all_works_again", held),
        shared.trial(
            "swallowed_bytes_for_two_ttls_lose_the_lock_on_time_and_all_works_again",
            swallowed,
        ),
        shared.trial(
            "refused_connections_for_two_ttls_lose_the_lock_on_time_and_all_works_again",
            refused,
        ),
        trial("a_stopped_server_for_two_ttls_loses_the_lock_on_time_and_all_works_again", stopped),
        trial("a_killed_server_for_two_ttls_loses_the_lock_on_time_and_all_works_again", killed),
        trial("a_server_killed_and_back_within_the_ttl_loses_nothing", killed_briefly),
        trial("a_server_restarted_in_order_loses_neither_holder_nor_waiters", restarted),
        shared.trial("connections_ended_by_the_server_are_made_anew", ended_by_server),
        shared.trial("one_failed_renewal_is_no_loss", one_failed_renewal),
    ]
}

async fn held(site: Site) -> Outcome {
    two_ttls(&site, || hold(&site.proxy), || site.proxy.heal()).await
}

async fn swallowed(site: Site) -> Outcome {
    let swallow = || {
        site.proxy.swallow(Direction::ToServer)?;
        site.proxy.swallow(Direction::ToClient)
    };
    let heal = || {
        // A stream with a hole in it is not what a network makes.
        site.proxy.cut()?;
        site.proxy.heal()
    };
    two_ttls(&site, swallow, heal).await
}

async fn refused(site: Site) -> Outcome {
    two_ttls(&site, || refuse(&site.proxy), || site.proxy.accept()).await
}

async fn stopped() -> Outcome {
    let site = Site::alone().await?;
    two_ttls(&site, || site.server.freeze(), || site.server.thaw()).await
}

async fn killed() -> Outcome {
    let site = Site::alone().await?;
    two_ttls(&site, || site.server.kill(), || site.server.restart()).await
}

/// One holds, one waits, and then nobody reaches the server for two TTLs.
async fn two_ttls(
    site: &Site,
    breaks: impl FnOnce() -> std::io::Result<()>,
    mends: impl FnOnce() -> std::io::Result<()>,
) -> Outcome {
    let (locks, others) = (site.locks().await?, site.locks().await?);
    let guard = locks.acquire("a").ttl(ttl(6_000)).wait(LONG).await?;
    let waiting = waiter(others.clone(), "a", 6_000);
    site.until_waiting("a", 1).await?;
    goes_on(&guard).await?;
    breaks()?;
    let until = lost_on_time(&guard).await?;
    clock::sleep_until(until + millis(6_000)).await;
    unreachable(&locks, &site.proxy.address()).await?;
    assert!(!waiting.is_finished());
    mends()?;
    let next = waiting.await??;
    assert!(next.token() > guard.token());
    assert_eq!(kind(guard.release().await), Some(ErrorKind::Lost));
    goes_on(&next).await?;
    next.release().await?;
    works(&locks, "a").await?;
    works(&others, "a").await
}

async fn unreachable(locks: &Locks, address: &str) -> Outcome {
    let refused = locks.try_acquire("b").await.unwrap_err();
    check_error(&refused, &[ErrorKind::Unavailable, ErrorKind::Indeterminate], &[address])
}

async fn killed_briefly() -> Outcome {
    let site = Site::alone().await?;
    let (locks, others) = (site.locks().await?, site.locks().await?);
    let guard = locks.acquire("a").ttl(ttl(30_000)).await?;
    let waiting = waiter(others, "a", 30_000);
    site.until_waiting("a", 1).await?;
    site.server.kill()?;
    site.server.restart()?;
    assert_eq!(kind(locks.acquire("a").wait(millis(2_000)).await), Some(ErrorKind::Contended));
    // By a connection that nobody has found dead yet it is unknown at first, and asked again.
    drop(guard.release().await);
    Ok(waiting.await??.release().await?)
}

async fn restarted() -> Outcome {
    let site = Site::alone().await?;
    let (locks, others) = (site.locks().await?, site.locks().await?);
    let guard = locks.acquire("a").ttl(ttl(12_000)).await?;
    let waiting = waiter(others, "a", 12_000);
    site.until_waiting("a", 1).await?;
    site.server.restart()?;
    goes_on(&guard).await?;
    assert!(!waiting.is_finished());
    guard.release().await?;
    Ok(waiting.await??.release().await?)
}

async fn ended_by_server(site: Site) -> Outcome {
    let (locks, others) = (site.locks().await?, site.locks().await?);
    let guard = locks.acquire("a").ttl(ttl(6_000)).await?;
    let waiting = waiter(others, "a", 6_000);
    site.until_waiting("a", 1).await?;
    for _ in 0..3 {
        assert!(site.cut_by_server()? > 0);
        goes_on(&guard).await?;
    }
    guard.release().await?;
    let next = waiting.await??;
    goes_on(&next).await?;
    next.release().await?;
    until("six connections at most", async || Ok(site.connections().await? <= 6)).await
}

async fn one_failed_renewal(site: Site) -> Outcome {
    faults::one_failed_renewal(&site.locks().await?, &site.proxy, 6_000).await
}
