//! Waiting, and its end.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::task::JoinSet;

use super::super::{
    Harness,
    case::{Failure, Verdict, check},
    faulty::{Call, Fault},
    site::{PATIENCE, Site, enter, eventually, granted, job, soon},
};
use crate::{
    Deadline, ErrorKind, Instant, LeaseState, Locker, Wait, clock,
    spi::{Backend, Lease, Request},
};

pub(super) async fn a_waiter_enters_after_the_release<H: Harness>(site: Site<H>) -> Verdict {
    let (first, second) = (site.locker().await?, site.locker().await?);
    let (name, ttl) = (job()?, site.long_ttl());
    let guard = first.acquire(&name).ttl(ttl).await?;
    let waiter = tokio::spawn(async move { enter(&second, &job()?, ttl).await });
    clock::sleep(Duration::from_millis(100)).await;
    check!(!waiter.is_finished(), "the waiter did not wait");
    let before = Instant::now();
    guard.release().await?;
    let (guard, entered) = soon("the waiter", waiter).await???;
    check!(entered >= before, "entered before the release was asked for");
    guard.release().await?;
    Ok(())
}

pub(super) async fn a_waiter_enters_after_the_ttl_of_a_silent_holder_and_not_before<H: Harness>(
    site: Site<H>,
) -> Verdict {
    let backend = site.backend().await?;
    let lease = granted(&backend, &Request::new(job()?, site.short_ttl())).await?;
    let end = lease.counted_from() + lease.ttl().get();
    let (guard, entered) = enter(&site.locker().await?, &job()?, site.long_ttl()).await?;
    check!(entered >= end, "entered {:?} before the TTL ended", end.since(entered));
    guard.release().await?;
    Ok(())
}

pub(super) async fn a_deadline_that_has_passed_is_one_try<H: Harness>(site: Site<H>) -> Verdict {
    let (locker, faults) = site.faulty().await?;
    let passed = Deadline::at(Instant::now() - Duration::from_secs(1));
    let guard = locker.acquire(job()?).wait(passed).await;
    // What is free is granted: a deadline bounds waiting, and here nobody waits.
    let guard = match guard {
        Ok(guard) => guard,
        Err(error) => {
            check!(error.kind() == ErrorKind::Contended, "{error}");
            locker.try_acquire(job()?).await?
        }
    };
    let before = faults.count(Call::Acquire);
    for wait in [Wait::No, Wait::Until(passed)] {
        let answer = locker.acquire(job()?).wait(wait).await;
        check!(kind_of(&answer) == Some(ErrorKind::Contended), "{wait:?}: {answer:?}");
    }
    let asked = faults.count(Call::Acquire) - before;
    check!(asked <= 2, "asked {asked} times for two tries");
    guard.release().await?;
    Ok(())
}

fn kind_of<T>(answer: &crate::Result<T>) -> Option<ErrorKind> {
    answer.as_ref().err().map(crate::Error::kind)
}

pub(super) async fn a_deadline_ends_the_wait_and_not_before<H: Harness>(site: Site<H>) -> Verdict {
    let (first, second) = (site.locker().await?, site.locker().await?);
    let guard = first.acquire(job()?).ttl(site.long_ttl()).await?;
    let deadline = Deadline::after(Duration::from_millis(400));
    let answer = second.acquire(job()?).wait(deadline).await;
    let now = Instant::now();
    check!(kind_of(&answer) == Some(ErrorKind::Contended), "{answer:?}");
    check!(
        now >= deadline.instant(),
        "ended {:?} before the deadline",
        deadline.instant().since(now)
    );
    let over = now.since(deadline.instant());
    check!(over < Duration::from_secs(3), "ended {over:?} after the deadline");
    guard.release().await?;
    second.acquire(job()?).wait(PATIENCE).await?.release().await?;
    Ok(())
}

pub(super) async fn a_deadline_ends_the_wait_in_the_line_of_this_process<H: Harness>(
    site: Site<H>,
) -> Verdict {
    let locker = site.locker().await?;
    let guard = locker.acquire(job()?).ttl(site.long_ttl()).await?;
    let deadline = Deadline::after(Duration::from_millis(300));
    let waits = [locker.acquire(job()?).wait(deadline), locker.acquire(job()?).wait(deadline)];
    let [one, two] = waits.map(IntoFuture::into_future);
    let (one, two) = soon("both ends", async { tokio::join!(one, two) }).await?;
    for answer in [one, two] {
        check!(kind_of(&answer) == Some(ErrorKind::Contended), "{answer:?}");
    }
    check!(deadline.has_passed(), "ended before the deadline");
    guard.release().await?;
    Ok(())
}

pub(super) async fn a_waiter_that_is_dropped_leaves_the_queue<H: Harness>(
    site: Site<H>,
) -> Verdict {
    let holder = site.locker().await?;
    let (gone, faults) = site.faulty().await?;
    let guard = holder.acquire(job()?).ttl(site.long_ttl()).await?;
    let ttl = site.long_ttl();
    let waiter = tokio::spawn(async move { gone.acquire(job()?).ttl(ttl).await });
    eventually("the waiter asks", || faults.count(Call::Acquire) == 1).await?;
    clock::sleep(Duration::from_millis(50)).await;
    waiter.abort();
    check!(soon("the end", waiter).await?.is_err(), "the waiter was not dropped");
    eventually("the waiter leaves while it is held", || faults.acquiring() == 0).await?;
    check!(guard.state() == LeaseState::Held, "the holder reads {:?}", guard.state());
    guard.release().await?;
    let (guard, _) = enter(&site.locker().await?, &job()?, site.long_ttl()).await?;
    guard.release().await?;
    Ok(())
}

pub(super) async fn a_waiter_of_3_ttls_gets_a_full_validity<H: Harness>(site: Site<H>) -> Verdict {
    let (first, second) = (site.locker().await?, site.locker().await?);
    let ttl = site.short_ttl();
    let guard = first.acquire(job()?).ttl(ttl).await?;
    let waiter = tokio::spawn(async move {
        let (guard, _) = enter(&second, &job()?, ttl).await?;
        let remaining = guard.remaining();
        Ok::<_, Failure>((guard, remaining))
    });
    clock::sleep(ttl.get() * 3).await;
    check!(!waiter.is_finished(), "entered while it was held");
    guard.release().await?;
    let (guard, remaining) = soon("the waiter", waiter).await???;
    // Half of it less the drift, and something for a busy machine.
    check!(remaining >= ttl.get() * 2 / 5, "{remaining:?} of {ttl:?} are left");
    guard.release().await?;
    Ok(())
}

/// Grants whose news come when much of the TTL, or all of it, is over.
pub(super) async fn a_grant_whose_news_come_late_gets_a_full_validity<H: Harness>(
    site: Site<H>,
) -> Verdict {
    let (ttl, other) = (site.short_ttl(), site.locker().await?);
    for late in [ttl.get() * 3 / 4, ttl.get() * 3 / 2] {
        let (locker, faults) = site.faulty().await?;
        faults.plan(Call::Acquire, Fault::DelaysReply(late), 1);
        // Whoever hands it out first and renews it then is seen.
        faults.plan(Call::Renew, Fault::Delays(ttl.get() / 10), 1);
        let (guard, _) = enter(&locker, &job()?, ttl).await?;
        let remaining = guard.remaining();
        check!(remaining >= ttl.get() * 2 / 5, "{late:?} late, {remaining:?} of {ttl:?} are left");
        let answer = other.try_acquire(job()?).await;
        check!(kind_of(&answer) == Some(ErrorKind::Contended), "two hold it: {answer:?}");
        guard.release().await?;
    }
    Ok(())
}

/// Gives a request that was just sent the time to reach the store: as long as several others take, on the same way.
async fn until_it_has_arrived<B: Backend>(
    locker: &Locker<B>,
    at_least: Duration,
) -> Result<(), Failure> {
    clock::sleep(at_least).await;
    for _ in 0..5 {
        locker.holder(&job()?).await?;
    }
    Ok(())
}

/// Acquires in the order of the numbers, each on its way before the next; says in which they entered.
async fn order_of_entry<H: Harness>(
    site: &Site<H>,
    one_process: bool,
) -> Result<(Vec<usize>, usize), Failure> {
    let holder = site.locker().await?;
    let guard = holder.acquire(job()?).ttl(site.long_ttl()).await?;
    let order = Arc::new(Mutex::new(Vec::new()));
    let (mut locker, mut faults) = site.faulty().await?;
    let mut tasks = JoinSet::new();
    for number in 0..5 {
        if number > 0 && !one_process {
            (locker, faults) = site.faulty().await?;
        }
        let (waiting, order, ttl) = (locker.clone(), Arc::clone(&order), site.long_ttl());
        tasks.spawn(async move {
            let (guard, _) = enter(&waiting, &job()?, ttl).await?;
            order.lock().unwrap_or_else(PoisonError::into_inner).push(number);
            guard.release().await?;
            Ok::<_, Failure>(())
        });
        eventually("the waiter asks", || faults.count(Call::Acquire) == 1).await?;
        until_it_has_arrived(&locker, Duration::from_millis(100)).await?;
    }
    guard.release().await?;
    while let Some(task) = soon("a waiter", tasks.join_next()).await? {
        task??;
    }
    let entered = order.lock().unwrap_or_else(PoisonError::into_inner).clone();
    Ok((entered, faults.acquiring_max()))
}

pub(super) async fn tasks_of_one_process_are_one_waiter_and_served_in_order<H: Harness>(
    site: Site<H>,
) -> Verdict {
    let (order, acquiring_max) = order_of_entry(&site, true).await?;
    check!(order == [0, 1, 2, 3, 4], "entered in the order {order:?}");
    check!(acquiring_max == 1, "{acquiring_max} waiters of one process stood at the store");
    Ok(())
}

pub(super) async fn connections_are_served_in_order<H: Harness>(site: Site<H>) -> Verdict {
    let (order, _) = order_of_entry(&site, false).await?;
    check!(order == [0, 1, 2, 3, 4], "entered in the order {order:?}");
    Ok(())
}

pub(super) async fn a_newcomer_does_not_overtake_who_waits<H: Harness>(site: Site<H>) -> Verdict {
    let (holder, newcomer) = (site.locker().await?, site.locker().await?);
    let ((waiting, faults), ttl) = (site.faulty().await?, site.long_ttl());
    for round in 1..=20 {
        let guard = holder.acquire(job()?).ttl(ttl).wait(PATIENCE).await?;
        let locker = waiting.clone();
        let waiter = tokio::spawn(async move { enter(&locker, &job()?, ttl).await });
        eventually("the waiter asks", || faults.count(Call::Acquire) == round).await?;
        until_it_has_arrived(&waiting, Duration::from_millis(20)).await?;
        guard.release().await?;
        let answer = newcomer.try_acquire(job()?).ttl(ttl).await;
        check!(kind_of(&answer) == Some(ErrorKind::Contended), "overtook: {answer:?}");
        let (guard, _) = soon("the waiter", waiter).await???;
        guard.release().await?;
    }
    Ok(())
}
