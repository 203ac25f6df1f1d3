//! Processes that end, crash and stand still.

use std::time::Duration;

use super::super::{
    Harness,
    case::{Verdict, check},
    site::{Site, enter, job, soon},
};
use crate::{ErrorKind, clock, spi::Wait};

pub(super) async fn a_process_enters_after_anothers_release<H: Harness>(site: Site<H>) -> Verdict {
    let (locker, mut child) = (site.locker().await?, site.child().await?);
    let guard = locker.acquire(job()?).ttl(site.long_ttl()).await?;
    child.start_acquiring(site.long_ttl(), "process")?;
    clock::sleep(Duration::from_millis(200)).await;
    guard.release().await?;
    check!(child.acquired().await?.state == "held", "the process did not get in");
    let holder = locker.holder(&job()?).await?;
    let pid = holder.as_ref().and_then(|holder| holder.identity.pid);
    check!(pid.is_none_or(|pid| pid == child.pid()), "the holder is {holder:?}");
    let refused = locker.try_acquire(job()?).await;
    check!(
        refused.is_err_and(|error| error.kind() == ErrorKind::Contended),
        "two processes hold it"
    );
    let waiter = tokio::spawn(async move { enter(&locker, &job()?, crate::Ttl::default()).await });
    clock::sleep(Duration::from_millis(200)).await;
    let released = child.release().await?;
    check!(released == "released", "the process's release said {released}");
    let (guard, _) = soon("the waiter", waiter).await???;
    guard.release().await?;
    Ok(())
}

pub(super) async fn a_killed_holder_frees_by_its_ttl<H: Harness>(site: Site<H>) -> Verdict {
    let mut child = site.child().await?;
    child.acquire(site.short_ttl(), "process").await?;
    child.kill()?;
    let (guard, _) = enter(&site.locker().await?, &job()?, site.long_ttl()).await?;
    guard.release().await?;
    Ok(())
}

pub(super) async fn a_killed_holder_frees_before_its_ttl<H: Harness>(site: Site<H>) -> Verdict {
    let (locker, mut child) = (site.locker().await?, site.child().await?);
    child.acquire(site.long_ttl(), "process").await?;
    let ttl = site.long_ttl();
    let waiter = tokio::spawn(async move { enter(&locker, &job()?, ttl).await });
    clock::sleep(Duration::from_millis(200)).await;
    check!(!waiter.is_finished(), "entered while the holder lives");
    child.kill()?;
    // The TTL is far away.
    let (guard, _) = soon("the waiter", waiter).await???;
    guard.release().await?;
    Ok(())
}

pub(super) async fn a_killed_holder_bound_to_nothing_keeps_its_ttl<H: Harness>(
    site: Site<H>,
) -> Verdict {
    let mut child = site.child().await?;
    let ttl = (site.short_ttl().get() * 2).try_into()?;
    let until = child.acquire(ttl, "nothing").await?.valid_until;
    child.kill()?;
    let (guard, entered) = enter(&site.locker().await?, &job()?, site.long_ttl()).await?;
    check!(entered >= until, "entered {:?} before the validity ended", until.since(entered));
    guard.release().await?;
    Ok(())
}

pub(super) async fn a_killed_waiter_holds_up_nobody<H: Harness>(site: Site<H>) -> Verdict {
    let (locker, mut child) = (site.locker().await?, site.child().await?);
    let guard = locker.acquire(job()?).ttl(site.long_ttl()).await?;
    child.start_acquiring(site.short_ttl(), "process")?;
    clock::sleep(Duration::from_millis(300)).await;
    child.kill()?;
    guard.release().await?;
    let (guard, _) = enter(&site.locker().await?, &job()?, site.long_ttl()).await?;
    guard.release().await?;
    Ok(())
}

/// Freezing is no end: nobody enters early. And whoever wakes too late neither works on nor reads held.
pub(super) async fn a_frozen_holder_is_taken_over_and_reads_lost<H: Harness>(
    site: Site<H>,
) -> Verdict {
    let (locker, mut child) = (site.locker().await?, site.child().await?);
    let ttl = (site.short_ttl().get() * 2).try_into()?;
    child.acquire(ttl, "process").await?;
    child.work().await?;
    clock::sleep(ttl.get()).await;
    let until = child.freeze_between_polls().await?.valid_until;
    let (guard, entered) = enter(&locker, &job()?, site.long_ttl()).await?;
    check!(entered >= until, "entered {:?} before the validity ended", until.since(entered));
    child.thaw()?;
    let told = child.told().await?;
    check!(told.state == "lost", "thawed, and reads {}", told.state);
    clock::sleep(Duration::from_millis(200)).await;
    let told = child.told().await?;
    check!(
        told.polled_at < entered,
        "the work was polled {:?} after the takeover",
        told.polled_at.since(entered)
    );
    let refused = locker.acquire(job()?).wait(Wait::No).await;
    check!(refused.is_err(), "the thawed holder freed the next one's lock");
    guard.release().await?;
    Ok(())
}
