//! A future may be dropped at any await, and nothing stays behind.
//!
//! A driver polls a future n times, with a step of the executor after each, and drops it: for all n until
//! it completes. On one thread and without real I/O that is every await of everything that it runs.

use std::{
    future::poll_fn,
    pin::{Pin, pin},
    task::Poll,
};

use super::super::{
    Harness,
    case::{Verdict, check},
    site::{PATIENCE, Site, enter, granted, job, soon},
};
use crate::{
    Locker, Ttl, clock,
    spi::{Backend, Inspect, Lease, Request},
};

/// From here on a future that does not complete waits for time to pass, not for polls.
const POLLS_MAX: usize = 20_000;

/// Every number up to 32, and then larger steps.
fn numbers_of_polls() -> impl Iterator<Item = usize> {
    std::iter::successors(Some(0), |&polls| {
        Some(if polls < 32 { polls + 1 } else { polls * 5 / 4 })
    })
    .take_while(|polls| *polls <= POLLS_MAX)
}

/// Polls at most that often, with a step of the executor after each; says whether it completed.
async fn poll_times<F: Future + ?Sized>(mut future: Pin<&mut F>, times: usize) -> bool {
    for _ in 0..times {
        if poll_fn(|context| Poll::Ready(future.as_mut().poll(context).is_ready())).await {
            return true;
        }
        tokio::task::yield_now().await;
    }
    false
}

/// Somebody else gets in, long before any TTL ends.
async fn is_free<B: Backend>(locker: &Locker<B>, ttl: Ttl) -> Verdict {
    let (guard, _) = soon("the lock is free", enter(locker, &job()?, ttl)).await??;
    guard.release().await?;
    Ok(())
}

async fn nothing_is_left<B: Backend>(locker: &Locker<B>) -> Verdict {
    let left = locker.list(None, 10).await?;
    check!(left.is_empty(), "left behind: {left:?}");
    Ok(())
}

pub(super) async fn acquire_of_a_free_lock_may_be_dropped_at_any_poll<H: Harness>(
    site: Site<H>,
) -> Verdict {
    let (locker, other, ttl) = (site.locker().await?, site.locker().await?, site.long_ttl());
    for polls in numbers_of_polls() {
        let mut acquire = locker.acquire(job()?).ttl(ttl).into_future();
        let completed = poll_times(acquire.as_mut(), polls).await;
        drop(acquire);
        is_free(&other, ttl).await?;
        if completed {
            break;
        }
    }
    nothing_is_left(&other).await
}

pub(super) async fn acquire_of_a_held_lock_may_be_dropped_at_any_poll<H: Harness>(
    site: Site<H>,
) -> Verdict {
    let (holder, locker, other) =
        (site.locker().await?, site.locker().await?, site.locker().await?);
    let ttl = site.long_ttl();
    for polls in numbers_of_polls() {
        let guard = holder.acquire(job()?).ttl(ttl).wait(PATIENCE).await?;
        let mut acquire = locker.acquire(job()?).ttl(ttl).into_future();
        let early = poll_times(acquire.as_mut(), polls / 2).await;
        check!(!early, "acquired what is held");
        let released = guard.release();
        let (completed, released) =
            tokio::join!(poll_times(acquire.as_mut(), polls - polls / 2), released);
        released?;
        drop(acquire);
        is_free(&other, ttl).await?;
        if completed {
            break;
        }
    }
    nothing_is_left(&other).await
}

pub(super) async fn release_may_be_dropped_at_any_poll<H: Harness>(site: Site<H>) -> Verdict {
    let (locker, other, ttl) = (site.locker().await?, site.locker().await?, site.long_ttl());
    for polls in numbers_of_polls() {
        let guard = locker.acquire(job()?).ttl(ttl).wait(PATIENCE).await?;
        let completed = {
            let release = pin!(guard.release());
            poll_times(release, polls).await
        };
        is_free(&other, ttl).await?;
        if completed {
            break;
        }
    }
    nothing_is_left(&other).await
}

pub(super) async fn renew_may_be_dropped_at_any_poll<H: Harness>(site: Site<H>) -> Verdict {
    let (backend, other, ttl) = (site.backend().await?, site.locker().await?, site.long_ttl());
    for polls in numbers_of_polls() {
        let mut lease = granted(&backend, &Request::new(job()?, ttl)).await?;
        let completed = {
            let renewal = pin!(lease.renew());
            poll_times(renewal, polls).await
        };
        if polls % 2 == 0 {
            lease.renew().await?;
        }
        // What was dropped does not take effect after this.
        lease.release().await?;
        is_free(&other, ttl).await?;
        if completed {
            break;
        }
    }
    nothing_is_left(&other).await
}

pub(super) async fn a_release_of_the_store_may_be_dropped_at_any_poll<H: Harness>(
    site: Site<H>,
) -> Verdict {
    let (backend, other, ttl) = (site.backend().await?, site.locker().await?, site.long_ttl());
    for polls in numbers_of_polls() {
        let mut lease = granted(&backend, &Request::new(job()?, ttl)).await?;
        let completed = {
            let release = pin!(lease.release());
            poll_times(release, polls).await
        };
        if !completed {
            // It may have taken effect before.
            drop(lease.release().await);
        }
        let next = Request::new(job()?, ttl);
        let mut next_lease = granted(&backend, &next).await?;
        clock::sleep(std::time::Duration::from_millis(1)).await;
        let holder = backend.holder(&job()?).await?;
        let is_next = holder.as_ref().is_some_and(|holder| holder.owner == next.owner().short());
        check!(is_next, "a dropped release took effect later: {holder:?}");
        next_lease.release().await?;
        if completed {
            break;
        }
    }
    nothing_is_left(&other).await
}
