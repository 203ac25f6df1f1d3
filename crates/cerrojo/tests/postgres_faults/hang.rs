//! Servers that do not answer, or too late: every call ends in time, and all works again afterwards on the same value.

use cerrojo::ErrorKind;
use cerrojo_testbed::Direction;
use libtest_mimic::Trial;

use crate::{
    faults::{self, FAULTS, LIMIT, Way, fails_in_time, hold, refuse, together},
    site::{
        LONG, Locks, OnServer, Outcome, Shared, Site, connect, goes_on, kind, millis, trial, ttl,
        until, waiter, works,
    },
};

/// Two for requests and one to listen.
const CONNECTIONS: u64 = 3;

pub(crate) fn trials(shared: &Shared) -> Vec<Trial> {
    vec![
        trial("a_stopped_server_ends_every_call_in_time", stopped),
        shared.trial("a_half_open_connection_ends_every_call_in_time", half_open),
        shared.trial("a_refusing_server_ends_every_call_in_time", refusing),
        shared.trial("a_server_slower_than_the_limit_ends_every_call_in_time", too_slow),
        shared.trial("a_server_a_little_faster_than_the_limit_serves_all", just_in_time),
        shared.trial("connections_stay_three_over_many_cycles_and_faults", constant_connections),
        shared.trial(
            "a_connection_that_went_silent_is_replaced_before_the_lock_is_lost",
            silent_holder,
        ),
        shared.trial("a_waiter_whose_connections_went_silent_enters_by_others", silent_waiter),
    ]
}

async fn locks_of(site: &Site) -> cerrojo::Result<Locks> {
    connect(&site.url(&format!("call_limit_ms={}", LIMIT.as_millis()))).await
}

async fn stopped() -> Outcome {
    let site = Site::alone().await?;
    all_end(&site, || site.server.freeze(), || site.server.thaw()).await
}

async fn half_open(site: Site) -> Outcome {
    all_end(&site, || hold(&site.proxy), || site.proxy.heal()).await
}

async fn refusing(site: Site) -> Outcome {
    all_end(&site, || refuse(&site.proxy), || site.proxy.accept()).await
}

async fn too_slow(site: Site) -> Outcome {
    let delay = || site.proxy.delay(Direction::ToClient, LIMIT * 2);
    all_end(&site, delay, || site.proxy.heal()).await
}

async fn all_end(
    site: &Site,
    breaks: impl FnOnce() -> std::io::Result<()>,
    mends: impl FnOnce() -> std::io::Result<()>,
) -> Outcome {
    let locks = locks_of(site).await?;
    let mends = async || {
        fails_in_time("prune", millis(0), locks.prune()).await?;
        Ok(mends()?)
    };
    faults::all_end(&locks, breaks, mends).await
}

async fn just_in_time(site: Site) -> Outcome {
    let locks = connect(&site.url("call_limit_ms=2000")).await?;
    site.proxy.delay(Direction::ToClient, millis(300))?;
    let guard = locks.acquire("a").ttl(ttl(9_000)).wait(LONG).await?;
    assert_eq!(kind(locks.try_acquire("a").await), Some(ErrorKind::Contended));
    goes_on(&guard).await?;
    guard.release().await?;
    site.proxy.heal()?;
    assert!(site.proxy.counts()?.connections_open <= CONNECTIONS);
    works(&locks, "a").await
}

const CYCLES: usize = 100;

/// Sixteen tasks at a time, a fault at every tenth cycle, and one that stands in the line all the time.
async fn constant_connections(site: Site) -> Outcome {
    let (locks, others) = (locks_of(&site).await?, site.direct().await?);
    let held = others.acquire("held").ttl(ttl(60_000)).await?;
    let waiting = waiter(locks.clone(), "held", 60_000);
    site.until_waiting("held", 1).await?;
    let mut faults = 0;
    for cycle in 0..CYCLES {
        if cycle % 10 == 0 {
            break_briefly(&site, &locks, faults).await?;
            faults += 1;
        }
        together(&locks, &cycle.to_string()).await;
        site.proxy.await_counts(LONG, |counts| counts.connections_open <= CONNECTIONS)?;
    }
    works(&locks, "a").await?;
    held.release().await?;
    waiting.await??.release().await?;
    drop(others);
    until("three connections", async || Ok(site.connections().await? <= 3)).await?;
    let counts = site.proxy.counts()?;
    // One that hangs is given up, and so is one that was made while the next fault began.
    assert!(counts.connections_seen <= 3 * CONNECTIONS * (faults + 1), "{counts:?}");
    drop(locks);
    site.proxy.await_counts(LONG, |counts| counts.connections_open == 0)?;
    until("no connection", async || Ok(site.connections().await? == 0)).await
}

async fn break_briefly(site: &Site, locks: &Locks, round: u64) -> Outcome {
    match round % (FAULTS + 1) {
        FAULTS => Ok(site.cut_by_server().map(drop)?),
        fault => faults::break_briefly(&site.proxy, locks, fault).await,
    }
}

/// With a limit for calls that alone would be too long for this TTL.
async fn silent_holder(site: Site) -> Outcome {
    let way = Way::start(&site.proxy, site.server.port())?;
    let locks = connect(&site.url("call_limit_ms=20000")).await?;
    let guard = locks.acquire("a").ttl(ttl(12_000)).wait(LONG).await?;
    way.go_silent()?;
    goes_on(&guard).await?;
    Ok(guard.release().await?)
}

async fn silent_waiter(site: Site) -> Outcome {
    let way = Way::start(&site.proxy, site.server.port())?;
    let (waits, locks) = (locks_of(&site).await?, site.direct().await?);
    let holder = locks.acquire("a").ttl(ttl(60_000)).await?;
    let waiting = waiter(waits, "a", 60_000);
    site.until_waiting("a", 1).await?;
    way.go_silent()?;
    holder.release().await?;
    Ok(waiting.await??.release().await?)
}
