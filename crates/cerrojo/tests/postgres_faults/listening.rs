//! Waiters that cannot be told: they ask again and again, but not too often, and a warning says so once.

use std::time::Duration;

use cerrojo::clock;
use cerrojo_testbed::Port;
use libtest_mimic::Trial;

use crate::{
    heard::{Heard, warnings},
    site::{Locks, Outcome, Shared, Site, connect, eventually, ttl, until, waiter, works},
};

pub(crate) fn trials(shared: &Shared) -> Vec<Trial> {
    vec![
        shared.trial("where_nobody_can_listen_waiters_poll_and_a_warning_comes_once", nowhere),
        shared.trial("a_waiter_that_polls_asks_at_most_twenty_times_a_second", one_polls),
        shared.trial("a_waiter_that_hears_asks_seldom", hears_and_asks_seldom),
    ]
}

/// How often anybody asked for a name that was held.
async fn asks(site: &Site) -> Outcome<i64> {
    let table = &site.table;
    site.number(&format!(
        "SELECT coalesce(sum(calls), 0)::bigint FROM pg_stat_user_functions WHERE funcname = '{table}_ask'"
    ))
    .await
}

pub(crate) async fn until_hearing(site: &Site, number: i64) -> Outcome {
    let table = &site.table;
    let hearing = format!("SELECT count(*) FROM cerrojo.{table}_waiter WHERE channel <> ''");
    until("waiters that hear", async || Ok(site.number(&hearing).await? == number)).await
}

/// A holder releases, and the next one enters, by whatever way it learns.
pub(crate) async fn enters(site: &Site, from: &Locks, to: &Locks) -> Outcome {
    let holder = from.acquire("a").ttl(ttl(60_000)).await?;
    let waiting = waiter(to.clone(), "a", 3_000);
    site.until_waiting("a", 1).await?;
    holder.release().await?;
    Ok(waiting.await??.release().await?)
}

async fn nowhere(site: Site) -> Outcome {
    let port = Port::reserve()?;
    let said = on_a_thread(move || {
        warnings(move |heard| async move {
            let url = site.url(&format!("listen={}", port.address()));
            let (deaf, locks) = (connect(&url).await?, site.direct().await?);
            enters(&site, &locks, &deaf).await?;
            until_warned(&heard).await?;
            for _ in 0..3 {
                enters(&site, &locks, &deaf).await?;
            }
            works(&deaf, "a").await
        })
    })
    .await?;
    assert_eq!(said.matches(WARNING).count(), 1, "{said}");
    Ok(())
}

pub(crate) const WARNING: &str = "LISTEN is not heard";

/// Connecting, or hearing nothing, takes its time.
pub(crate) async fn until_warned(heard: &Heard) -> Outcome {
    eventually("a warning", || Ok(heard.lock().unwrap().contains(WARNING))).await
}

/// What listens to warnings has a runtime of its own.
pub(crate) async fn on_a_thread<T: Send + 'static>(
    work: impl FnOnce() -> Outcome<T> + Send + 'static,
) -> Outcome<T> {
    tokio::task::spawn_blocking(work).await?
}

/// The longest time for which calls are counted.
const COUNTED: Duration = Duration::from_secs(3);

/// How often they asked within [`COUNTED`], and not before they stood in the line.
async fn rate(site: &Site, waiters: i64, options: &str) -> Outcome<f64> {
    let (locks, deaf) = (site.direct().await?, connect(&site.url(options)).await?);
    let mut held = Vec::new();
    let mut waiting = Vec::new();
    for number in 0..waiters {
        let name = format!("n{number}");
        held.push(locks.acquire(name.as_str()).ttl(ttl(60_000)).await?);
        waiting.push(waiter(deaf.clone(), &name, 60_000));
    }
    let line = format!("SELECT count(*) FROM cerrojo.{}_waiter", site.table);
    until("all in line", async || Ok(site.number(&line).await? == waiters)).await?;
    let (before, start) = (asks(site).await?, cerrojo::Instant::now());
    clock::sleep(COUNTED).await;
    // The server counts with a delay of a second at most.
    let asked = asks(site).await? - before;
    let took = cerrojo::Instant::now().since(start) + Duration::from_secs(1);
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
    Ok(asked as f64 / took.as_secs_f64())
}

async fn one_polls(site: Site) -> Outcome {
    let rate = rate(&site, 1, "listen=no").await?;
    assert!((1.0..=20.0).contains(&rate), "{rate} a second");
    Ok(())
}

async fn hears_and_asks_seldom(site: Site) -> Outcome {
    let rate = rate(&site, 20, "").await?;
    assert!(rate <= 20.0, "{rate} a second");
    until_hearing(&site, 0).await
}
