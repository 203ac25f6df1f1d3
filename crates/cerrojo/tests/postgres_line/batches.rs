//! Requests that travel together.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use cerrojo::{
    LeaseState,
    backend::postgres::{Postgres, PostgresLease},
    clock,
    spi::{Acquired, Backend, Lease, Request},
};
use cerrojo_testbed::{Direction, Proxy};
use tokio::task::JoinSet;

use crate::{
    line::{NAME, child::job},
    site::{LONG, Locks, Outcome, Site, connect, locker, release, ttl, until},
};

/// Cycles of so many tasks, each with a lock of its own.
fn cycles(
    locks: &Locks,
    tasks: usize,
    goes_on: impl Fn(usize) -> bool + Clone + Send + Sync + 'static,
) -> JoinSet<Outcome> {
    let mut cycles = JoinSet::new();
    for number in 0..tasks {
        let (locks, goes_on) = (locks.clone(), goes_on.clone());
        cycles.spawn(async move {
            for round in (0..).take_while(|round| goes_on(*round)) {
                let acquired = locks.acquire(job(number).as_str()).wait(LONG).await;
                let guard = acquired.map_err(|error| format!("round {round}: {error}"))?;
                release(guard).await?;
            }
            Ok(())
        });
    }
    cycles
}

async fn all(mut tasks: JoinSet<Outcome>) -> Outcome {
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(())
}

pub(crate) async fn sixty_four_tasks_make_few_transactions(site: Site) -> Outcome {
    let locks = site.locks().await?;
    all(cycles(&locks, 64, |round| round < 25)).await?;
    drop(locks);
    until("no connection", async || Ok(site.connections().await? == 0)).await?;
    let calls = site.calls("acquire").await? + site.calls("release").await?;
    let requests = 2 * 64 * 25;
    assert!(calls > 0 && calls < requests / 4, "{calls} calls for {requests} requests");
    Ok(())
}

async fn granted(store: &Postgres, request: &Request) -> Outcome<PostgresLease> {
    match store.acquire(request).await? {
        Acquired::Granted(lease) => Ok(lease),
        Acquired::Refused(refusal) => Err(format!("{refusal:?}").into()),
    }
}

/// Each is sent before the answer to the one before it has come.
async fn check_order(store: &Postgres) -> Outcome {
    let request = || Request::new(NAME.parse().unwrap(), ttl(30_000));
    let (first, second, third) = (request(), request(), request());
    let (acquired, given_back) =
        tokio::join!(granted(store, &first), store.give_back(first.name(), first.owner()));
    drop(acquired?);
    given_back?;
    let mut lease = granted(store, &second).await?;
    let (renewed, given_back, acquired) = tokio::join!(
        lease.renew(),
        store.give_back(second.name(), second.owner()),
        granted(store, &third)
    );
    renewed?;
    given_back?;
    let mut lease = acquired?;
    let (released, renewed) =
        tokio::join!(store.give_back(third.name(), third.owner()), lease.renew());
    released?;
    assert!(renewed.is_err(), "renewed after its release");
    Ok(())
}

pub(crate) async fn requests_for_one_name_keep_their_order(site: Site) -> Outcome {
    let store = connect(&site.url("")).await?;
    let goes_on = Arc::new(AtomicBool::new(true));
    let others = Arc::clone(&goes_on);
    let others = cycles(&locker(store.clone()), 32, move |_| others.load(Ordering::Relaxed));
    for _ in 0..100 {
        check_order(&store).await?;
    }
    goes_on.store(false, Ordering::Relaxed);
    all(others).await
}

/// A renewal gives up after a sixth of its TTL, and with it the connection on which others had asked too.
pub(crate) async fn a_short_renewal_neither_spoils_its_batch_nor_is_spoilt(site: Site) -> Outcome {
    let proxy = Proxy::start(site.server.port())?;
    let store = connect(&site.url_at(proxy.port(), "")).await?;
    let locks = locker(store);
    let mut short = Vec::new();
    for number in 0..8 {
        let name = format!("short/{number}");
        short.push(locks.acquire(name.as_str()).ttl(ttl(1_500)).await?);
    }
    let goes_on = Arc::new(AtomicBool::new(true));
    let others = Arc::clone(&goes_on);
    let others = cycles(&locks, 32, move |_| others.load(Ordering::Relaxed));
    for _ in 0..3 {
        // Longer than a renewal waits, shorter than a lease lasts.
        proxy.hold(Direction::ToClient)?;
        clock::sleep(Duration::from_millis(600)).await;
        proxy.flow(Direction::ToClient)?;
        let before: Vec<_> = short.iter().map(cerrojo::FencedGuard::renewals).collect();
        let renewed =
            || short.iter().zip(&before).all(|(guard, before)| guard.renewals() > *before);
        until("renewals", async || Ok(renewed())).await?;
    }
    goes_on.store(false, Ordering::Relaxed);
    all(others).await?;
    for guard in short {
        assert_ne!(guard.state(), LeaseState::Lost);
        guard.release().await?;
    }
    Ok(())
}
