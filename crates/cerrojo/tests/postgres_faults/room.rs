//! A disk that is full.

use std::fs;

use cerrojo::{ErrorKind, LeaseState};
use cerrojo_testbed::{Disk, PostgresServer};
use libtest_mimic::Trial;

use crate::site::{LONG, Locks, Outcome, Site, check_error, goes_on, kind, trial, ttl, works};

pub(crate) fn trials() -> Vec<Trial> {
    vec![trial("a_full_disk_is_told_while_what_is_held_goes_on", full)]
}

/// More than a new cluster takes with its first log.
const DISK_BYTES: u64 = 160 << 20;

async fn full() -> Outcome {
    let disk = Disk::new(DISK_BYTES)?;
    let site = Site::of(&PostgresServer::builder().fast().on_disk(&disk)).await?;
    let locks = site.locks().await?;
    let held = locks.acquire("held").ttl(ttl(9_000)).await?;
    disk.fill("ballast")?;
    let refused = until_refused(&locks).await?;
    check_error(&refused, &[ErrorKind::Unavailable], &["53100", "its disk is full"])?;
    goes_on(&held).await?;
    assert_eq!(kind(locks.try_acquire("held").await), Some(ErrorKind::Contended));
    fs::remove_file(disk.path().join("ballast"))?;
    works(&locks, "new").await?;
    assert_eq!(held.state(), LeaseState::Held);
    Ok(held.release().await?)
}

/// Each new name takes a row.
async fn until_refused(locks: &Locks) -> Outcome<cerrojo::Error> {
    for number in 0..2_000 {
        if let Err(error) = locks.acquire(format!("n{number}").as_str()).wait(LONG / 30).await {
            return Ok(error);
        }
    }
    Err("never full".into())
}
