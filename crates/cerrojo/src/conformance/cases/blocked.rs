//! An executor that synchronous code keeps from running: the keeper cannot renew, and cannot say that it could not.

use std::{
    future::poll_fn,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    task::Poll,
    time::Duration,
};

use tokio::runtime::{Handle, RuntimeFlavor};

use super::super::{
    Harness,
    case::{Failure, Verdict, check},
    site::{Site, enter, job, on_own_thread, soon},
};
use crate::{ErrorKind, LeaseState, Locker};

#[expect(clippy::disallowed_methods, reason = "blocking an executor is what is tried here")]
fn block(length: Duration) {
    std::thread::sleep(length);
}

/// Keeps this thread, and every worker if there are others, from running anything for so long.
fn block_the_executor(length: Duration) {
    let runtime = Handle::current();
    let workers = match runtime.runtime_flavor() {
        RuntimeFlavor::CurrentThread => 0,
        _ => runtime.metrics().num_workers(),
    };
    for _ in 0..workers {
        drop(runtime.spawn(async move { block(length) }));
    }
    block(length);
}

pub(super) async fn a_blocked_executor_reads_lost_at_the_first_look<H: Harness>(
    site: Site<H>,
) -> Verdict {
    let (locker, ttl) = (site.locker().await?, site.short_ttl());
    let guard = locker.acquire(job()?).ttl(ttl).await?;
    block_the_executor(ttl.get() * 2);
    check!(guard.state() == LeaseState::Lost, "the first look reads {:?}", guard.state());
    check!(guard.valid_until().is_none(), "lost, and yet valid");
    soon("lost", guard.lost()).await?;
    let answer = guard.release().await;
    check!(answer.as_ref().is_err_and(|error| error.kind() == ErrorKind::Lost), "{answer:?}");
    Ok(())
}

pub(super) async fn run_never_polls_its_work_after_a_block<H: Harness>(site: Site<H>) -> Verdict {
    let (locker, ttl) = (site.locker().await?, site.short_ttl());
    let guard = locker.acquire(job()?).ttl(ttl).await?;
    let polls = AtomicU32::new(0);
    let work = poll_fn(|context| {
        polls.fetch_add(1, Ordering::SeqCst);
        block_the_executor(ttl.get() * 2);
        context.waker().wake_by_ref();
        Poll::<()>::Pending
    });
    let answer = soon("the end", guard.run(work)).await?;
    check!(answer.as_ref().is_err_and(|error| error.kind() == ErrorKind::Lost), "{answer:?}");
    let polls = polls.load(Ordering::SeqCst);
    check!(polls == 1, "the work was polled {polls} times");
    Ok(())
}

pub(super) async fn nobody_enters_before_a_blocked_holder_is_lost<H: Harness>(
    site: Site<H>,
) -> Verdict {
    let site = Arc::new(site);
    let (locker, ttl) = (site.locker().await?, site.short_ttl());
    let guard = locker.acquire(job()?).ttl(ttl).await?;
    let (signal, other) = (guard.signal(), Arc::clone(&site));
    let next = on_own_thread(move || async move {
        let locker = Locker::new(other.backend().await?);
        let (guard, _) = enter(&locker, &job()?, other.long_ttl()).await?;
        let state = signal.state();
        guard.release().await?;
        Ok::<_, Failure>(state)
    });
    block_the_executor(ttl.get() * 2);
    let seen = soon("the next", next).await???;
    check!(seen == LeaseState::Lost, "the next entered when the holder read {seen:?}");
    Ok(())
}
