//! What a store promises to one owner, asked directly.

use std::{collections::HashSet, time::Duration};

use super::super::{
    Harness,
    case::{Failure, Verdict, check},
    faulty::{Call, Fault},
    site::{LeaseOf, PATIENCE, Site, enter, granted, job},
};
use crate::{
    ErrorKind, OwnerId, Result, Token, clock,
    spi::{Acquired, Backend, Inspect, Lease, Request},
};

pub(super) fn token_of<L: Lease>(lease: &L) -> Option<u64> {
    L::Token::number(&lease.grant())
}

/// Whether the store said that the lease is not this owner's any more.
fn says_lost(answer: &Result<()>) -> bool {
    answer.as_ref().is_err_and(|error| error.kind() == ErrorKind::Lost)
}

async fn is_held_by<B: Backend>(backend: &B, owner: OwnerId) -> Verdict {
    let holder = backend.holder(&job()?).await?;
    let is_owner = holder.as_ref().is_some_and(|holder| holder.owner == owner.short());
    check!(is_owner, "the holder is {holder:?}, not {owner:?}");
    Ok(())
}

pub(super) async fn acquire_is_idempotent_for_one_owner<H: Harness>(site: Site<H>) -> Verdict {
    let backend = site.backend().await?;
    let request = Request::new(job()?, site.long_ttl());
    let first = granted(&backend, &request).await?;
    let mut second = granted(&backend, &request).await?;
    let tokens = [token_of(&first), token_of(&second)];
    check!(tokens[0] == tokens[1], "one owner has the tokens {tokens:?}");
    check!(second.counted_from() >= first.counted_from(), "the second answer counts from before");
    is_held_by(&backend, request.owner()).await?;
    second.release().await?;
    check!(backend.holder(&job()?).await?.is_none(), "held after the release");
    Ok(())
}

pub(super) async fn a_lost_reply_of_acquire_finds_the_same_grant<H: Harness>(
    site: Site<H>,
) -> Verdict {
    let (locker, faults) = site.faulty().await?;
    faults.plan(Call::Acquire, Fault::LosesReply, 2);
    let guard = locker.acquire(job()?).ttl(site.long_ttl()).wait(PATIENCE).await?;
    let grants: HashSet<_> =
        faults.grants().iter().map(|grant| (grant.owner, grant.token)).collect();
    check!(faults.grants().len() == 3, "{} answers", faults.grants().len());
    check!(grants.len() == 1, "different grants: {:?}", faults.grants());
    guard.release().await?;
    site.locker().await?.try_acquire(job()?).await?.release().await?;
    Ok(())
}

/// Acquires, asks again when three quarters of the TTL have passed, and lets the lease end.
pub(super) async fn a_retry_near_the_end_does_not_outlive_the_store<H: Harness>(
    site: Site<H>,
) -> Verdict {
    let backend = site.backend().await?;
    let request = Request::new(job()?, site.short_ttl());
    let first = granted(&backend, &request).await?;
    clock::sleep_until(first.counted_from() + first.ttl().get() * 3 / 4).await;
    let second = granted(&backend, &request).await?;
    let end = second.counted_from() + second.ttl().get();
    let (next, entered) = enter(&site.locker().await?, &job()?, site.long_ttl()).await?;
    check!(entered >= end, "entered {:?} before the retried grant ended", end.since(entered));
    next.release().await?;
    Ok(())
}

pub(super) async fn a_retry_after_the_end_is_a_new_grant<H: Harness>(site: Site<H>) -> Verdict {
    let backend = site.backend().await?;
    let request = Request::new(job()?, site.short_ttl());
    let first = granted(&backend, &request).await?;
    // Somebody else was in between, and may have worked.
    let (next, _) = enter(&site.locker().await?, &job()?, site.long_ttl()).await?;
    next.release().await?;
    let mut second = granted(&backend, &request).await?;
    let tokens = (token_of(&first), token_of(&second));
    check!(tokens.0 < tokens.1, "before the end {:?}, after it {:?}", tokens.0, tokens.1);
    second.release().await?;
    Ok(())
}

pub(super) async fn an_owner_that_was_released_never_asks_again<H: Harness>(
    site: Site<H>,
) -> Verdict {
    let (locker, faults) = site.faulty().await?;
    for fault in [Fault::LosesReply, Fault::Fails] {
        faults.plan(Call::Acquire, fault, 1);
        let answer = locker.try_acquire(job()?).await;
        check!(answer.is_err(), "{fault:?} was not told: {answer:?}");
        faults.plan(Call::Acquire, fault, 1);
        let guard = locker.acquire(job()?).wait(PATIENCE).await?;
        faults.plan(Call::Release, fault, 1);
        drop(guard.release().await);
        locker.acquire(job()?).wait(PATIENCE).await?.release().await?;
    }
    let mut released = HashSet::new();
    for (call, owner) in faults.calls() {
        match call {
            Call::GiveBack | Call::Release => {
                released.insert(owner);
            }
            Call::Acquire => check!(!released.contains(&owner), "{owner:?} asks after its release"),
            Call::Renew | Call::Resume => {}
        }
    }
    check!(released.len() >= 6, "only {} owners were released", released.len());
    Ok(())
}

pub(super) async fn giving_back_frees_what_an_unknown_acquire_got<H: Harness>(
    site: Site<H>,
) -> Verdict {
    let backend = site.backend().await?;
    let request = Request::new(job()?, site.long_ttl());
    let lost = granted(&backend, &request).await?;
    let stranger = backend.give_back(&job()?, OwnerId::random()).await;
    check!(says_lost(&stranger), "a stranger gave back: {stranger:?}");
    is_held_by(&backend, request.owner()).await?;
    backend.give_back(&job()?, request.owner()).await?;
    let next = Request::new(job()?, site.long_ttl());
    let mut lease = granted(&backend, &next).await?;
    let again = backend.give_back(&job()?, request.owner()).await;
    check!(says_lost(&again), "given back twice: {again:?}");
    is_held_by(&backend, next.owner()).await?;
    drop(lost);
    lease.release().await?;
    Ok(())
}

/// A lease that has ended, unreleased, and after it one of somebody else's.
async fn ended_and_next<H: Harness>(
    site: &Site<H>,
    backend: &H::Backend,
) -> Result<(LeaseOf<H>, LeaseOf<H>), Failure> {
    let ended = granted(backend, &Request::new(job()?, site.short_ttl())).await?;
    let request = Request::new(job()?, site.long_ttl()).with_wait(PATIENCE);
    let next = granted(backend, &request).await?;
    Ok((ended, next))
}

/// A lease whose TTL has ended by the store's clock too, and that nobody else has wanted since.
async fn ended_and_free<H: Harness>(
    site: &Site<H>,
    backend: &H::Backend,
) -> Result<LeaseOf<H>, Failure> {
    let lease = granted(backend, &Request::new(job()?, site.short_ttl())).await?;
    clock::sleep(lease.ttl().get()).await;
    for _ in 0..400 {
        if backend.holder(&job()?).await?.is_none() {
            return Ok(lease);
        }
        clock::sleep(Duration::from_millis(10)).await;
    }
    Err(Failure::new("held long after its TTL"))
}

pub(super) async fn what_has_ended_is_not_held_although_nobody_took_it<H: Harness>(
    site: Site<H>,
) -> Verdict {
    let backend = site.backend().await?;
    let mut ended = ended_and_free(&site, &backend).await?;
    let answer = ended.renew().await;
    check!(says_lost(&answer), "renewed what has ended: {answer:?}");
    check!(backend.holder(&job()?).await?.is_none(), "a renewal made a holder");
    let answer = ended.release().await;
    check!(says_lost(&answer), "released what has ended: {answer:?}");
    check!(backend.list(None, 1).await?.is_empty(), "listed after its end");
    Ok(())
}

pub(super) async fn renew_never_recreates_what_has_ended<H: Harness>(site: Site<H>) -> Verdict {
    let backend = site.backend().await?;
    let (mut ended, mut next) = ended_and_next(&site, &backend).await?;
    next.release().await?;
    let answer = ended.renew().await;
    check!(says_lost(&answer), "renewed what has ended: {answer:?}");
    check!(backend.holder(&job()?).await?.is_none(), "a renewal made a holder");
    let answer = next.renew().await;
    check!(says_lost(&answer), "renewed what was released: {answer:?}");
    check!(backend.holder(&job()?).await?.is_none(), "a renewal made a holder");
    Ok(())
}

pub(super) async fn renew_never_touches_anothers_lease<H: Harness>(site: Site<H>) -> Verdict {
    let backend = site.backend().await?;
    let (mut ended, mut next) = ended_and_next(&site, &backend).await?;
    let answer = ended.renew().await;
    check!(says_lost(&answer), "renewed what has ended: {answer:?}");
    is_held_by(&backend, next.owner()).await?;
    next.renew().await?;
    next.release().await?;
    Ok(())
}

pub(super) async fn renew_sets_the_ttl_anew<H: Harness>(site: Site<H>) -> Verdict {
    let backend = site.backend().await?;
    let mut lease = granted(&backend, &Request::new(job()?, site.short_ttl())).await?;
    let first = lease.counted_from();
    clock::sleep(lease.ttl().get() / 2).await;
    lease.renew().await?;
    check!(lease.counted_from() > first, "the renewal does not count");
    let end = lease.counted_from() + lease.ttl().get();
    let (next, entered) = enter(&site.locker().await?, &job()?, site.long_ttl()).await?;
    check!(entered >= end, "entered {:?} before the renewed TTL ended", end.since(entered));
    next.release().await?;
    Ok(())
}

pub(super) async fn release_never_frees_anothers_lease<H: Harness>(site: Site<H>) -> Verdict {
    let backend = site.backend().await?;
    let (mut ended, mut next) = ended_and_next(&site, &backend).await?;
    let answer = ended.release().await;
    check!(says_lost(&answer), "released what has ended: {answer:?}");
    is_held_by(&backend, next.owner()).await?;
    let refused = backend.acquire(&Request::new(job()?, site.long_ttl())).await?;
    check!(matches!(refused, Acquired::Refused(_)), "another's lease was freed");
    next.release().await?;
    Ok(())
}

pub(super) async fn release_may_be_asked_twice<H: Harness>(site: Site<H>) -> Verdict {
    let backend = site.backend().await?;
    let mut first = granted(&backend, &Request::new(job()?, site.long_ttl())).await?;
    first.release().await?;
    let answer = first.release().await;
    check!(answer.is_ok() || says_lost(&answer), "{answer:?}");
    let request = Request::new(job()?, site.long_ttl());
    let mut second = granted(&backend, &request).await?;
    drop(first.release().await);
    is_held_by(&backend, request.owner()).await?;
    second.release().await?;
    Ok(())
}
