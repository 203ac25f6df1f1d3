//! A thousand at once. These run in a process of their own, whose descriptors they count.

use std::time::Duration;

use tokio::task::JoinSet;

use super::super::{
    Harness,
    case::{Failure, Verdict, check},
    faulty::Call,
    site::{GuardOf, Site, eventually, job},
};
use crate::{
    Deadline, LeaseState, Locker, clock,
    spi::{Backend, Lease},
};

const CROWD: usize = 1_000;
/// For all of a crowd to get through.
const CROWD_LIMIT: Duration = Duration::from_secs(90);

/// How many descriptors this process has, where that can be counted.
fn descriptors() -> Option<usize> {
    std::fs::read_dir("/proc/self/fd").ok().map(Iterator::count)
}

/// Few more than `before`.
fn few_more<H: Harness>(site: &Site<H>, before: Option<usize>) -> Verdict {
    let (now, more) = (descriptors(), site.can().descriptors_max);
    check!(now <= before.map(|before| before + more), "{before:?} descriptors became {now:?}");
    Ok(())
}

/// Acquires a thousand names at once.
async fn hold_all<B: Backend>(
    locker: &Locker<B>,
) -> Result<Vec<crate::Guard<<B::Lease as Lease>::Token>>, Failure> {
    let mut tasks = JoinSet::new();
    for number in 0..CROWD {
        let locker = locker.clone();
        tasks.spawn(async move { locker.acquire(format!("job/{number}")).wait(CROWD_LIMIT).await });
    }
    let mut guards = Vec::new();
    while let Some(guard) = tasks.join_next().await {
        guards.push(guard??);
    }
    Ok(guards)
}

async fn release_all<H: Harness>(guards: Vec<GuardOf<H>>) -> Verdict {
    let mut tasks = JoinSet::new();
    for guard in guards {
        tasks.spawn(guard.release());
    }
    while let Some(released) = tasks.join_next().await {
        released??;
    }
    Ok(())
}

async fn nothing_is_left<H: Harness>(site: &Site<H>) -> Verdict {
    let left = site.locker().await?.list(None, CROWD).await?;
    check!(left.is_empty(), "{} locks are left", left.len());
    Ok(())
}

pub(super) async fn a_thousand_held_locks_use_few_descriptors<H: Harness>(
    site: Site<H>,
) -> Verdict {
    let locker = site.locker().await?;
    let first = locker.acquire(job()?).await?;
    let before = descriptors();
    let guards = hold_all(&locker).await?;
    few_more(&site, before)?;
    check!(guards.len() == CROWD, "{} are held", guards.len());
    let held = guards.iter().filter(|guard| guard.state() == LeaseState::Held).count();
    check!(held == CROWD, "{held} read held");
    release_all::<H>(guards).await?;
    first.release().await?;
    few_more(&site, before)?;
    locker.close(Deadline::after(CROWD_LIMIT)).await?;
    nothing_is_left(&site).await
}

pub(super) async fn a_thousand_waiters_on_one_name_all_enter<H: Harness>(site: Site<H>) -> Verdict {
    let (holder, (locker, faults)) = (site.locker().await?, site.faulty().await?);
    locker.acquire("other").await?.release().await?;
    let guard = holder.acquire(job()?).ttl(site.long_ttl()).await?;
    let (before, asked) = (descriptors(), faults.count(Call::Acquire));
    let mut tasks = JoinSet::new();
    for _ in 0..CROWD {
        let locker = locker.clone();
        tasks.spawn(async move { locker.acquire(job()?).wait(CROWD_LIMIT).await?.release().await });
    }
    eventually("the first waiter asks", || faults.count(Call::Acquire) > asked).await?;
    clock::sleep(Duration::from_millis(300)).await;
    few_more(&site, before)?;
    guard.release().await?;
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    check!(faults.grants().len() == CROWD + 1, "{} grants", faults.grants().len());
    nothing_is_left(&site).await
}

pub(super) async fn a_thousand_waiters_on_a_thousand_names_all_enter<H: Harness>(
    site: Site<H>,
) -> Verdict {
    let (holder, (locker, faults)) = (site.locker().await?, site.faulty().await?);
    locker.acquire("other").await?.release().await?;
    let (held, asked) = (hold_all(&holder).await?, faults.count(Call::Acquire));
    let before = descriptors();
    let waiters = tokio::spawn(async move { hold_all(&locker).await });
    eventually("all wait", || faults.count(Call::Acquire) == asked + CROWD).await?;
    clock::sleep(Duration::from_millis(300)).await;
    few_more(&site, before)?;
    check!(!waiters.is_finished(), "entered while all was held");
    release_all::<H>(held).await?;
    let entered = waiters.await??;
    check!(entered.len() == CROWD, "{} entered", entered.len());
    release_all::<H>(entered).await?;
    nothing_is_left(&site).await
}
