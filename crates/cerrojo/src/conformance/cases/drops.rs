//! A guard may be dropped anywhere.

use std::{
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use super::super::{
    Harness,
    case::{Failure, Verdict, check},
    site::{GuardOf, Site, enter, job, on_own_thread, soon},
};
use crate::{Deadline, ErrorKind, LeaseState, clock};

/// Acquires with a TTL that does not end, drops the guard as `end` does, and sees that the lock is free.
async fn dropped_by<H: Harness>(
    site: Site<H>,
    end: impl FnOnce(GuardOf<H>) + Send + 'static,
) -> Verdict {
    let (locker, ttl) = (site.locker().await?, site.long_ttl());
    let guard = locker.acquire(job()?).ttl(ttl).await?;
    end(guard);
    let (guard, _) = enter(&site.locker().await?, &job()?, ttl).await?;
    guard.release().await?;
    Ok(())
}

pub(super) async fn a_guard_dropped_in_a_task_frees<H: Harness>(site: Site<H>) -> Verdict {
    dropped_by(site, |guard| drop(tokio::spawn(async move { drop(guard) }))).await
}

pub(super) async fn a_guard_dropped_without_a_runtime_frees<H: Harness>(site: Site<H>) -> Verdict {
    dropped_by(site, |guard| drop(std::thread::spawn(move || drop(guard)).join())).await
}

pub(super) async fn a_guard_dropped_in_a_panic_frees<H: Harness>(site: Site<H>) -> Verdict {
    dropped_by(site, |guard| {
        let panicked = catch_unwind(AssertUnwindSafe(move || {
            let _guard = guard;
            resume_unwind(Box::new("unwinding with a guard"));
        }));
        drop(panicked);
    })
    .await
}

pub(super) async fn a_guard_outlives_its_runtime<H: Harness>(site: Site<H>) -> Verdict {
    let (ttl, site) = (site.short_ttl(), Arc::new(site));
    let there = Arc::clone(&site);
    let guards = on_own_thread(move || async move {
        let locker = there.locker().await?;
        let kept = locker.acquire(job()?).ttl(ttl).await?;
        let released = locker.acquire("released").ttl(ttl).await?;
        let dropped = locker.acquire("dropped").ttl(ttl).await?;
        Ok::<_, Failure>((kept, released, dropped))
    });
    let (kept, released, dropped) = soon("the guards", guards).await???;
    drop(std::thread::spawn(move || drop(dropped)).join());
    let answer = soon("an answer", released.release()).await?;
    let kinds = [ErrorKind::Indeterminate, ErrorKind::Lost];
    let honest = answer.as_ref().is_err_and(|error| kinds.contains(&error.kind()));
    check!(honest, "a release without a runtime said {answer:?}");
    let locker = site.locker().await?;
    let (next, _) = enter(&locker, &job()?, site.long_ttl()).await?;
    check!(
        kept.state() == LeaseState::Lost,
        "the next entered when the holder read {:?}",
        kept.state()
    );
    soon("lost", kept.lost()).await?;
    next.release().await?;
    for name in ["released", "dropped"] {
        enter(&locker, &name.parse()?, site.long_ttl()).await?.0.release().await?;
    }
    Ok(())
}

pub(super) async fn acquire_without_a_runtime_is_refused<H: Harness>(site: Site<H>) -> Verdict {
    let locker = site.locker().await?;
    let answer = std::thread::spawn(move || {
        let mut acquire = locker.acquire("job").into_future();
        match acquire.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(answer) => answer.map(drop).map_err(|error| error.kind()),
            Poll::Pending => Ok(()),
        }
    });
    let answer = answer.join().map_err(|_| Failure::new("panicked"))?;
    check!(answer == Err(ErrorKind::Invalid), "answered {answer:?}");
    Ok(())
}

pub(super) async fn closing_waits_for_releases_and_ends_waiters<H: Harness>(
    site: Site<H>,
) -> Verdict {
    let (locker, ttl) = (site.locker().await?, site.long_ttl());
    let guards = [locker.acquire(job()?).ttl(ttl).await?, locker.acquire("other").ttl(ttl).await?];
    let waiting = locker.clone();
    let waiter = tokio::spawn(async move { waiting.acquire("job").await });
    let closing = locker.clone();
    let closing =
        tokio::spawn(async move { closing.close(Deadline::after(Duration::from_secs(60))).await });
    let answer = soon("the waiter's end", waiter).await??;
    check!(answer.is_err(), "a waiter entered a closed locker");
    clock::sleep(Duration::from_millis(50)).await;
    check!(!closing.is_finished(), "closed while locks were held");
    drop(guards);
    soon("the end of closing", closing).await???;
    let left = site.locker().await?.list(None, 10).await?;
    check!(left.is_empty(), "closed, and yet held: {left:?}");
    let answer = locker.acquire(job()?).await;
    check!(
        answer.is_err_and(|error| error.kind() == ErrorKind::Invalid),
        "a closed locker acquires"
    );
    Ok(())
}

pub(super) async fn closing_ends_at_its_deadline<H: Harness>(site: Site<H>) -> Verdict {
    let locker = site.locker().await?;
    let guard = locker.acquire(job()?).ttl(site.long_ttl()).await?;
    let deadline = Deadline::after(Duration::from_millis(100));
    let answer = soon("the end of closing", locker.close(deadline)).await?;
    let unknown = answer.as_ref().is_err_and(|error| error.kind() == ErrorKind::Indeterminate);
    check!(unknown && deadline.has_passed(), "closing said {answer:?}");
    check!(guard.state() == LeaseState::Held, "closing took a lock away");
    guard.release().await?;
    soon("the end of closing", locker.close(Deadline::after(Duration::from_secs(60)))).await??;
    Ok(())
}
