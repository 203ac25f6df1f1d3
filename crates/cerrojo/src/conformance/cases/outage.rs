//! A store that answers nobody for a while.

use std::time::Duration;

use super::super::{
    Harness,
    case::{Failure, Verdict, check},
    site::{PATIENCE, Site, enter, eventually, job, soon},
};
use crate::{Deadline, ErrorKind, Instant, LeaseState, clock, spi::CALL_LIMIT};

pub(super) async fn a_severed_store_is_lost_on_time<H: Harness>(site: Site<H>) -> Verdict {
    let (holder, other) = (site.locker().await?, site.locker().await?);
    let guard = holder.acquire(job()?).ttl(site.short_ttl()).await?;
    let severed = site.sever()?;
    let until = guard.valid_until().ok_or_else(|| Failure::new("lost at once"))?;
    soon("lost", guard.lost()).await?;
    check!(Instant::now() >= until, "lost before the validity ended");
    let late = Instant::now().since(until);
    check!(
        late < site.short_ttl().get() + Duration::from_secs(3),
        "lost {late:?} after the validity ended"
    );
    drop(severed);
    let (next, entered) = enter(&other, &job()?, site.long_ttl()).await?;
    check!(entered >= until, "entered before the validity ended");
    check!(guard.state() == LeaseState::Lost, "the holder reads {:?}", guard.state());
    drop(guard);
    next.release().await?;
    Ok(())
}

pub(super) async fn a_short_outage_is_ridden_out<H: Harness>(site: Site<H>) -> Verdict {
    let locker = site.locker().await?;
    let ttl = site.short_ttl().get() * 4;
    let guard = locker.acquire(job()?).ttl(ttl.try_into()?).await?;
    let severed = site.sever()?;
    clock::sleep(ttl / 2).await;
    drop(severed);
    let renewals = guard.renewals();
    eventually("a renewal", || guard.renewals() > renewals || guard.state() == LeaseState::Lost)
        .await?;
    check!(guard.state() == LeaseState::Held, "the state is {:?}", guard.state());
    guard.release().await?;
    Ok(())
}

pub(super) async fn acquire_ends_at_its_deadline_while_severed<H: Harness>(
    site: Site<H>,
) -> Verdict {
    let locker = site.locker().await?;
    let severed = site.sever()?;
    let deadline = Deadline::after(Duration::from_millis(300));
    let answer = soon("the end", locker.acquire(job()?).wait(deadline).into_future()).await?;
    let over = Instant::now().since(deadline.instant());
    let kind = answer.as_ref().err().map(crate::Error::kind);
    let expected = [ErrorKind::Unavailable, ErrorKind::Indeterminate, ErrorKind::Contended];
    check!(kind.is_some_and(|kind| expected.contains(&kind)), "{answer:?}");
    // One call to acquire, one to give back what it may have got.
    check!(over < CALL_LIMIT * 2 + Duration::from_secs(3), "ended {over:?} after the deadline");
    drop(severed);
    locker.acquire(job()?).wait(PATIENCE).await?.release().await?;
    Ok(())
}

pub(super) async fn acquire_rides_out_an_outage_within_its_deadline<H: Harness>(
    site: Site<H>,
) -> Verdict {
    let locker = site.locker().await?;
    let severed = site.sever()?;
    let ttl = site.long_ttl();
    let waiter = tokio::spawn(async move { enter(&locker, &job()?, ttl).await });
    clock::sleep(Duration::from_millis(500)).await;
    check!(!waiter.is_finished(), "answered by a store that answers nobody");
    drop(severed);
    let (guard, _) = soon("the waiter", waiter).await???;
    guard.release().await?;
    Ok(())
}
