//! Leases that outlive their guard, and are taken up by their owner id.

use std::time::Duration;

use super::{
    super::{
        Harness,
        case::{Verdict, check},
        faulty::{Call, Fault},
        site::{PATIENCE, Site, enter, granted, job},
    },
    owners::token_of,
};
use crate::{
    ErrorKind, LeaseState, OwnerId, Result, clock,
    spi::{Backend, Inspect, Lease, Request},
};

fn says_lost<T>(answer: &Result<T>) -> bool {
    answer.as_ref().is_err_and(|error| error.kind() == ErrorKind::Lost)
}

pub(super) async fn a_detached_lease_stands_until_its_ttl_and_no_longer<H: Harness>(
    site: Site<H>,
) -> Verdict {
    let ((first, faults), second) = (site.faulty().await?, site.locker().await?);
    let guard = first.acquire(job()?).ttl(site.short_ttl()).await?;
    let until = guard.valid_until();
    guard.detach().await?;
    let (next, entered) = enter(&second, &job()?, site.long_ttl()).await?;
    check!(until.is_some_and(|until| entered >= until), "entered before the TTL ended");
    check!(faults.count(Call::Release) == 0, "a detached lease was released");
    next.release().await?;
    Ok(())
}

/// A store may hand a lock over provisionally; what is left standing is the whole.
pub(super) async fn a_lease_that_was_waited_for_stands_for_its_whole_ttl<H: Harness>(
    site: Site<H>,
) -> Verdict {
    let (holder, waiter) = (site.locker().await?, site.locker().await?);
    let held = holder.acquire(job()?).ttl(site.long_ttl()).await?;
    let waiting = tokio::spawn(async move {
        let guard = waiter.acquire(job()?).ttl(site.long_ttl()).wait(PATIENCE).await?;
        guard.detach().await
    });
    clock::sleep(Duration::from_millis(300)).await;
    held.release().await?;
    waiting.await??;
    clock::sleep(Duration::from_secs(3)).await;
    let answer = holder.try_acquire(job()?).await;
    check!(answer.is_err(), "free again after 3 s of a long TTL");
    Ok(())
}

pub(super) async fn a_detached_lease_is_taken_up_anywhere_by_its_owner<H: Harness>(
    site: Site<H>,
) -> Verdict {
    let (first, second) = (site.locker().await?, site.locker().await?);
    let guard = first.acquire(job()?).ttl(site.long_ttl()).await?;
    let owner = guard.owner();
    guard.detach().await?;
    let guard = second.resume(&job()?, owner, site.short_ttl()).await?;
    check!(guard.owner() == owner, "taken up by somebody else");
    while guard.renewals() < 3 {
        clock::sleep(site.short_ttl().get() / 10).await;
    }
    check!(guard.state() == LeaseState::Held, "not kept: {:?}", guard.state());
    guard.release().await?;
    first.try_acquire(job()?).await?.release().await?;
    Ok(())
}

pub(super) async fn resume_finds_the_same_token<H: Harness>(site: Site<H>) -> Verdict {
    let (backend, another) = (site.backend().await?, site.backend().await?);
    let request = Request::new(job()?, site.long_ttl());
    let lease = granted(&backend, &request).await?;
    let mut resumed = another.resume(&job()?, request.owner(), site.long_ttl()).await?;
    check!(token_of(&resumed) == token_of(&lease), "another token");
    check!(resumed.counted_from() >= lease.counted_from(), "the TTL was not set anew");
    resumed.release().await?;
    Ok(())
}

pub(super) async fn resume_never_recreates_and_never_takes_anothers<H: Harness>(
    site: Site<H>,
) -> Verdict {
    let backend = site.backend().await?;
    let owner = OwnerId::random();
    let answer = backend.resume(&job()?, owner, site.long_ttl()).await;
    check!(says_lost(&answer), "resumed what never was: {answer:?}");
    check!(backend.holder(&job()?).await?.is_none(), "resume made a holder");
    let mut lease = granted(&backend, &Request::new(job()?, site.long_ttl())).await?;
    let answer = backend.resume(&job()?, owner, site.long_ttl()).await;
    check!(says_lost(&answer), "resumed another's: {answer:?}");
    let held_by = lease.owner();
    lease.release().await?;
    let answer = backend.resume(&job()?, held_by, site.long_ttl()).await;
    check!(says_lost(&answer), "resumed what was released: {answer:?}");
    Ok(())
}

pub(super) async fn a_detached_lease_is_released_by_its_owner_only<H: Harness>(
    site: Site<H>,
) -> Verdict {
    let (first, second) = (site.locker().await?, site.locker().await?);
    let guard = first.acquire(job()?).ttl(site.long_ttl()).await?;
    let owner = guard.owner();
    guard.detach().await?;
    let answer = second.release(&job()?, OwnerId::random()).await;
    check!(says_lost(&answer), "a stranger released: {answer:?}");
    second.release(&job()?, owner).await?;
    let answer = second.release(&job()?, owner).await;
    check!(says_lost(&answer), "released twice: {answer:?}");
    first.try_acquire(job()?).await?.release().await?;
    Ok(())
}

pub(super) async fn detaching_what_is_lost_says_so<H: Harness>(site: Site<H>) -> Verdict {
    let (locks, faults) = site.faulty().await?;
    faults.keep(Call::Renew, Fault::Hangs);
    let guard = locks.acquire(job()?).ttl(site.short_ttl()).await?;
    guard.lost().await;
    let answer = guard.detach().await;
    check!(says_lost(&answer), "{answer:?}");
    Ok(())
}
