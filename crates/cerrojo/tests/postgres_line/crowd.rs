//! Very many who hardly wait.

use std::time::Duration;

use cerrojo::{Deadline, ErrorKind, backend::postgres::Postgres};
use tokio::task::JoinSet;

use crate::{
    line::NAME,
    site::{LONG, Locks, Outcome, Site, connect, kind_of, locker, release, until},
};

/// Stores with connections of their own, and how many wait in each at a time.
const STORES: usize = 4;
const TASKS: usize = 16;
/// How often each of them does.
const WAITS: usize = 160;

/// How many of its waits were granted.
async fn wait_often(locks: Locks) -> Outcome<usize> {
    let mut granted = 0;
    for _ in 0..WAITS {
        let answer = locks.acquire(NAME).wait(Duration::from_millis(1)).await;
        match kind_of(&answer) {
            None => {
                granted += 1;
                release(answer?).await?;
            }
            // At the end of its time somebody's transaction may have held the row, and a busy machine may take too long.
            Some(ErrorKind::Contended | ErrorKind::Unavailable | ErrorKind::Indeterminate) => {}
            Some(_) => return Err(answer.map(drop).unwrap_err().into()),
        }
    }
    Ok(granted)
}

/// The store's memory of its waiters, as it shows itself.
fn remembers_nobody(store: &Postgres) -> bool {
    format!("{store:?}").contains("waiting: {}")
}

pub(crate) async fn ten_thousand_short_waits_leave_nothing(site: Site) -> Outcome {
    let (mut stores, mut lockers, mut crowd) = (Vec::new(), Vec::new(), JoinSet::new());
    for _ in 0..STORES {
        let store = connect(&site.url("")).await?;
        for _ in 0..TASKS {
            // With a line of its own, so that all of them meet in the store's.
            let locks = locker(store.clone());
            crowd.spawn(wait_often(locks.clone()));
            lockers.push(locks);
        }
        stores.push(store);
    }
    let mut granted = 0;
    while let Some(done) = crowd.join_next().await {
        granted += done??;
    }
    assert!(granted > 0, "nobody was granted anything");
    for locks in &lockers {
        locks.close(Deadline::after(LONG)).await?;
    }
    assert_eq!((site.waiting().await?, site.owner().await?), (0, None));
    assert!(stores.iter().all(remembers_nobody), "{stores:?}");
    site.locks().await?.try_acquire(NAME).await?.release().await?;
    drop((stores, lockers));
    until("no connection", async || Ok(site.connections().await? == 0)).await
}
