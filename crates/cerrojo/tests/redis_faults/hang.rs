//! Servers that do not answer, or too late: every call ends in time, and all works again afterwards on the same value.

use cerrojo::{ErrorKind, clock};
use cerrojo_testbed::Direction;
use libtest_mimic::Trial;

use crate::{
    faults::{self, FAULTS, LIMIT, Way, break_briefly, hold, refuse, together},
    site::{
        LONG, Locks, Outcome, Site, bounded, connect, eventually, goes_on, kind, millis, runtime,
        trial, ttl, works,
    },
};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("a_stopped_server_ends_every_call_in_time", stopped),
        trial("a_half_open_connection_ends_every_call_in_time", half_open),
        trial("a_refusing_server_ends_every_call_in_time", refusing),
        trial("a_server_slower_than_the_limit_ends_every_call_in_time", too_slow),
        trial("a_server_a_little_faster_than_the_limit_serves_all", just_in_time),
        trial("connections_stay_one_over_many_cycles_and_faults", constant_connections),
        trial("waiters_outlive_a_server_that_hangs", hung_waiters),
        Trial::test("a_store_outlives_the_runtime_that_was_dialing", dead_runtime),
        trial("a_connection_that_went_silent_is_replaced_before_the_lock_is_lost", silent_holder),
        trial("a_waiter_whose_connection_went_silent_enters_by_another", silent_waiter),
    ]
}

async fn locks_of(site: &Site) -> cerrojo::Result<Locks> {
    connect(&site.url(&format!("call_limit_ms={}", LIMIT.as_millis()))).await
}

async fn stopped() -> Outcome {
    let site = Site::start()?;
    all_end(&site, || site.server.freeze(), || site.server.thaw()).await
}

async fn half_open() -> Outcome {
    let site = Site::start()?;
    all_end(&site, || hold(&site.proxy), || site.proxy.heal()).await
}

async fn refusing() -> Outcome {
    let site = Site::start()?;
    all_end(&site, || refuse(&site.proxy), || site.proxy.accept()).await
}

async fn too_slow() -> Outcome {
    let site = Site::start()?;
    let delay = || site.proxy.delay(Direction::ToClient, LIMIT * 2);
    all_end(&site, delay, || site.proxy.heal()).await
}

async fn all_end(
    site: &Site,
    breaks: impl FnOnce() -> std::io::Result<()>,
    mends: impl FnOnce() -> std::io::Result<()>,
) -> Outcome {
    faults::all_end(&locks_of(site).await?, breaks, async || Ok(mends()?)).await
}

async fn just_in_time() -> Outcome {
    let site = Site::start()?;
    let locks = connect(&site.url("call_limit_ms=1000")).await?;
    site.proxy.delay(Direction::ToClient, millis(400))?;
    let guard = locks.acquire("a").ttl(ttl(6_000)).await?;
    assert_eq!(kind(locks.try_acquire("a").await), Some(ErrorKind::Contended));
    goes_on(&guard).await?;
    guard.release().await?;
    assert_eq!(site.proxy.counts()?.connections_seen, 1);
    site.proxy.heal()?;
    works(&locks, "a").await
}

const CYCLES: usize = 200;

/// Sixteen tasks at a time, a fault at every tenth cycle.
async fn constant_connections() -> Outcome {
    let site = Site::start()?;
    let locks = locks_of(&site).await?;
    let mut faults = 0;
    for cycle in 0..CYCLES {
        if cycle % 10 == 0 {
            break_briefly(&site.proxy, &locks, faults % FAULTS).await?;
            faults += 1;
        }
        together(&locks, &cycle.to_string()).await;
        site.proxy.await_counts(LONG, |counts| counts.connections_open <= 1)?;
    }
    works(&locks, "a").await?;
    let counts = site.proxy.counts()?;
    assert_eq!(counts.connections_open, 1);
    // One that hangs is given up, and so is one that was made while the next fault began.
    assert!(counts.connections_seen <= 3 * faults + 1, "{counts:?} after {faults} faults");
    drop(locks);
    site.proxy.await_counts(LONG, |counts| counts.connections_open == 0)?;
    Ok(())
}

/// The server hangs for several limits while ten wait; each gets its turn.
async fn hung_waiters() -> Outcome {
    let site = Site::start()?;
    let locks = locks_of(&site).await?;
    let holder = locks.acquire("a").ttl(ttl(60_000)).await?;
    let mut waiting = tokio::task::JoinSet::new();
    for _ in 0..10 {
        let locks = locks_of(&site).await?;
        waiting.spawn(async move {
            let guard = locks.acquire("a").ttl(ttl(60_000)).wait(LONG).await?;
            guard.release().await
        });
    }
    eventually("ten in line", || Ok(site.server.command(&["ZCARD", "cerrojo:{a}:line"])? == "10"))
        .await?;
    site.server.freeze()?;
    clock::sleep(LIMIT * 4).await;
    site.server.thaw()?;
    holder.release().await?;
    while let Some(entered) = waiting.join_next().await {
        entered??;
    }
    Ok(())
}

/// With a limit for calls that alone would be too long for this TTL.
async fn silent_holder() -> Outcome {
    let site = Site::start()?;
    let way = Way::start(&site.proxy, site.server.port())?;
    let locks = connect(&site.url("call_limit_ms=10000")).await?;
    let guard = locks.acquire("a").ttl(ttl(5_000)).await?;
    way.go_silent()?;
    goes_on(&guard).await?;
    Ok(guard.release().await?)
}

async fn silent_waiter() -> Outcome {
    let site = Site::start()?;
    let way = Way::start(&site.proxy, site.server.port())?;
    let waiter = locks_of(&site).await?;
    let locks = connect(&format!("redis://{}", site.server.address())).await?;
    let holder = locks.acquire("a").ttl(ttl(60_000)).await?;
    let waiting = tokio::spawn(async move { waiter.acquire("a").wait(LONG).await });
    eventually("a waiter", || site.has_key("cerrojo:{a}:line")).await?;
    way.go_silent()?;
    holder.release().await?;
    Ok(waiting.await??.release().await?)
}

/// What dials belongs to a runtime, and may go with it.
fn dead_runtime() -> Outcome {
    let site = Site::start()?;
    let first = runtime();
    let locks = first.block_on(locks_of(&site))?;
    site.proxy.cut()?;
    site.proxy.hold(Direction::ToClient)?;
    let before = site.proxy.counts()?.connections_seen;
    let asking = locks.clone();
    let asking = first.spawn(async move { asking.acquire("a").wait(LONG).await });
    site.proxy.await_counts(LONG, move |counts| counts.connections_seen > before)?;
    first.shutdown_background();
    drop(asking);
    site.proxy.heal()?;
    runtime().block_on(bounded(works(&locks, "b")))
}
