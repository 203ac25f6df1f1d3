//! One at a time.

use std::{path::Path, time::Duration};

use tokio::task::JoinSet;

use super::super::{
    Harness,
    case::{Failure, Verdict, check},
    site::{PATIENCE, Scratch, Site, job, soon},
};
use crate::{ErrorKind, Locker, clock, spi::Backend};

const ROUNDS: u32 = 8;
/// The longest that all of a counter's rounds may take.
const COUNTING: Duration = Duration::from_secs(90);

/// Adds one to the number in `file` under the lock, by a read, a pause and a write.
pub(crate) async fn count_up<B: Backend>(locker: &Locker<B>, file: &Path, rounds: u32) -> Verdict {
    for _ in 0..rounds {
        let guard = locker.acquire(job()?).wait(COUNTING).await?;
        guard.run(add_one(file)).await??;
        guard.release().await?;
    }
    Ok(())
}

async fn add_one(file: &Path) -> Verdict {
    let number = number_in(file)?;
    clock::sleep(Duration::from_millis(1)).await;
    Ok(std::fs::write(file, (number + 1).to_string())?)
}

fn number_in(file: &Path) -> Result<u32, Failure> {
    Ok(std::fs::read_to_string(file)?.parse()?)
}

/// Eight tasks on two connections.
async fn start_8_tasks<H: Harness>(
    site: &Site<H>,
    file: &Path,
) -> Result<JoinSet<Verdict>, Failure> {
    let mut tasks = JoinSet::new();
    for _ in 0..2 {
        let locker = site.locker().await?;
        for _ in 0..4 {
            let (locker, file) = (locker.clone(), file.to_owned());
            tasks.spawn(async move { count_up(&locker, &file, ROUNDS).await });
        }
    }
    Ok(tasks)
}

async fn finish(mut tasks: JoinSet<Verdict>) -> Verdict {
    while let Some(task) = tasks.join_next().await {
        task??;
    }
    Ok(())
}

pub(super) async fn a_counter_of_8_tasks_loses_no_update<H: Harness>(site: Site<H>) -> Verdict {
    let folder = Scratch::new()?;
    let file = folder.path().join("counter");
    std::fs::write(&file, "0")?;
    finish(start_8_tasks(&site, &file).await?).await?;
    let (number, expected) = (number_in(&file)?, 8 * ROUNDS);
    check!(number == expected, "{number} of {expected} updates are there");
    Ok(())
}

pub(super) async fn a_counter_of_8_tasks_and_4_processes_loses_no_update<H: Harness>(
    site: Site<H>,
) -> Verdict {
    let folder = Scratch::new()?;
    let file = folder.path().join("counter");
    std::fs::write(&file, "0")?;
    let mut children = Vec::new();
    for _ in 0..4 {
        children.push(site.child().await?);
    }
    for child in &mut children {
        child.start_counting(&file, ROUNDS)?;
    }
    finish(start_8_tasks(&site, &file).await?).await?;
    for child in &mut children {
        child.counted().await?;
    }
    let (number, expected) = (number_in(&file)?, 12 * ROUNDS);
    check!(number == expected, "{number} of {expected} updates are there");
    Ok(())
}

pub(super) async fn one_of_16_tries_is_granted<H: Harness>(site: Site<H>) -> Verdict {
    let mut tries = JoinSet::new();
    let lockers = [site.locker().await?, site.locker().await?];
    for locker in lockers.iter().cycle().take(16) {
        let locker = locker.clone();
        tries.spawn(async move { locker.try_acquire(job()?).await });
    }
    let mut guards = Vec::new();
    while let Some(answer) = soon("an answer", tries.join_next()).await? {
        match answer? {
            Ok(guard) => guards.push(guard),
            Err(error) => check!(error.kind() == ErrorKind::Contended, "a try failed: {error}"),
        }
    }
    check!(guards.len() == 1, "{} of 16 tries were granted", guards.len());
    drop(guards);
    let next = lockers.first().ok_or_else(|| Failure::new("no locker"))?;
    next.acquire(job()?).wait(PATIENCE).await?.release().await?;
    Ok(())
}
