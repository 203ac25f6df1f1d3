//! Many holders at once, each with its token, some of them late.

use std::sync::{
    Arc,
    atomic::{AtomicI64, AtomicU64, Ordering},
};

use cerrojo::fence::postgres::TableError;
use tokio_postgres::{Client, IsolationLevel};

use crate::site::{LEVELS, Outcome, Site};

const HOLDERS: usize = 6;
const ROUNDS: usize = 60;

/// What a holder came to.
enum Turn {
    Wrote,
    Overtaken,
}

/// Reads in one transaction and writes what it made of that in another, under the same token.
pub(crate) async fn a_crowd_loses_no_update_in_a_table(site: Site) -> Outcome {
    let site = Arc::new(site);
    let (tokens, written) = (Arc::new(AtomicU64::new(1)), Arc::new(AtomicI64::new(0)));
    let mut crowd = tokio::task::JoinSet::new();
    for holder in 0..HOLDERS {
        let (site, tokens) = (Arc::clone(&site), Arc::clone(&tokens));
        let written = Arc::clone(&written);
        crowd.spawn(async move {
            let mut client = site.client().await?;
            for _ in 0..ROUNDS {
                let number = tokens.fetch_add(1, Ordering::Relaxed);
                if let Turn::Wrote = turn(&site, &mut client, LEVELS[holder % 3], number).await? {
                    written.fetch_add(1, Ordering::Relaxed);
                }
            }
            Outcome::Ok(())
        });
    }
    while let Some(holder) = crowd.join_next().await {
        holder??;
    }
    let mut client = site.client().await?;
    let balance = site.read(&client.transaction().await?).await?;
    assert_eq!(balance, written.load(Ordering::Relaxed), "an update was lost");
    assert!(balance > 0, "nobody ever wrote");
    Ok(())
}

async fn turn(
    site: &Site,
    client: &mut Client,
    level: IsolationLevel,
    number: u64,
) -> Outcome<Turn> {
    let mut read = None;
    loop {
        let transaction = client.build_transaction().isolation_level(level).start().await?;
        match site.admit(&transaction, number).await {
            Ok(()) => {}
            Err(TableError::Stale(_)) => return Ok(Turn::Overtaken),
            Err(TableError::Busy { .. }) => continue,
            Err(error) => return Err(error.into()),
        }
        let Some(balance) = read else {
            let balance = site.read(&transaction).await?;
            if transaction.commit().await.is_ok() {
                read = Some(balance);
            }
            continue;
        };
        let is_written = site.write(&transaction, balance + 1).await.is_ok();
        if is_written && transaction.commit().await.is_ok() {
            return Ok(Turn::Wrote);
        }
    }
}
