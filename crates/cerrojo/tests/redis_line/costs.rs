//! What waiting costs while nothing happens.

use std::time::Duration;

use cerrojo::{Instant, backend::redis::TICK, clock};
use tokio::task::JoinSet;

use crate::{
    line::{NAME, Waiter},
    site::{Outcome, Site, eventually, ttl},
};

/// How long is counted.
const COUNTED: Duration = Duration::from_secs(5);
/// A waiter asks after so long at the earliest.
const BETWEEN: Duration = Duration::from_secs(TICK.as_secs() / 2);
/// Those at the front, who look after the holder, and the renewals of the holder.
const OTHERS_MAX: i64 = 10;

struct Counts {
    scripts: i64,
    connections: String,
}

fn counts(site: &Site) -> Outcome<Counts> {
    let calls = site.server.info("cmdstat_evalsha")?;
    let calls = calls.split_once("calls=").and_then(|(_, rest)| rest.split_once(','));
    let scripts = calls.ok_or("no count")?.0.parse()?;
    Ok(Counts { scripts, connections: site.server.info("connected_clients")? })
}

/// So many stand in lines, and ask no more than they may.
async fn check(site: &Site, waiters: i64) -> Outcome {
    // Whoever has come asks once more soon.
    clock::sleep(Duration::from_secs(3)).await;
    let (start, before) = (Instant::now(), counts(site)?);
    clock::sleep(COUNTED).await;
    let after = counts(site)?;
    let each_max = 1 + Instant::now().since(start).as_secs() / BETWEEN.as_secs();
    let asked = after.scripts - before.scripts;
    let max = waiters * i64::try_from(each_max)? + OTHERS_MAX;
    assert!(asked <= max, "{asked} calls of {waiters} waiters");
    assert_eq!(before.connections, after.connections);
    Ok(())
}

pub(crate) async fn two_hundred_waiters_ask_seldom(site: Site) -> Outcome {
    let guard = site.locks().await?.acquire(NAME).await?;
    let lockers = site.lockers(200).await?;
    let start = |locks| Waiter::start(locks, ttl(30_000));
    let waiters: Vec<_> = lockers.iter().map(start).collect();
    site.until_waiting(200).await?;
    check(&site, 200).await?;
    assert!(waiters.iter().all(Waiter::is_waiting));
    Ok(guard.release().await?)
}

pub(crate) async fn a_thousand_waited_names_cost_no_connections(site: Site) -> Outcome {
    let (holder, waiting) = (site.locks().await?, site.locks().await?);
    let mut guards = Vec::new();
    let mut waiters = JoinSet::new();
    let connections = site.server.info("connected_clients")?;
    for number in 0..1_000 {
        let (name, waiting) = (format!("job/{number}"), waiting.clone());
        guards.push(holder.acquire(name.as_str()).ttl(ttl(3_600_000)).await?);
        waiters.spawn(async move { waiting.acquire(name.as_str()).await.map(drop) });
    }
    eventually("all in a line", || Ok(site.number(&["DBSIZE"])? == 3_000)).await?;
    check(&site, 1_000).await?;
    assert_eq!(connections, site.server.info("connected_clients")?);
    assert!(waiters.try_join_next().is_none(), "a waiter ended");
    drop(guards);
    while let Some(waiter) = waiters.join_next().await {
        waiter??;
    }
    Ok(())
}
