//! Loss is seen in time, once, and by everyone who looks.

use std::{
    future::poll_fn,
    sync::atomic::{AtomicBool, Ordering},
    task::Poll,
    time::Duration,
};

use super::super::{
    Harness,
    case::{Failure, Verdict, check},
    faulty::{Call, Fault},
    site::{PATIENCE, Site, enter, eventually, job, soon},
};
use crate::{ErrorKind, Instant, LeaseState, LostSignal, clock};

/// Late beyond what a busy machine explains.
const LATE: Duration = Duration::from_secs(3);

/// `lost` is ready now: not before the validity ended, and not long after.
fn is_on_time(signal: &LostSignal, until: Instant) -> Verdict {
    let now = Instant::now();
    check!(now >= until, "lost {:?} before the validity ended", until.since(now));
    check!(now.since(until) < LATE, "lost {:?} after the validity ended", now.since(until));
    check!(signal.state() == LeaseState::Lost, "the state is {:?}", signal.state());
    check!(signal.valid_until().is_none(), "lost, and yet valid");
    Ok(())
}

async fn lost_on_time_and_before_anyone_enters<H: Harness>(site: Site<H>, fault: Fault) -> Verdict {
    let ((holder, faults), other) = (site.faulty().await?, site.locker().await?);
    faults.keep(Call::Renew, fault);
    let guard = holder.acquire(job()?).ttl(site.short_ttl()).await?;
    let until = guard.valid_until().ok_or_else(|| Failure::new("lost at once"))?;
    let (signal, ttl) = (guard.signal(), site.long_ttl());
    let next = tokio::spawn(async move {
        let (guard, entered) = enter(&other, &job()?, ttl).await?;
        Ok::<_, Failure>((guard, entered, signal.state()))
    });
    soon("lost", guard.lost()).await?;
    is_on_time(&guard.signal(), until)?;
    let (next, entered, state) = soon("the next", next).await???;
    check!(entered >= until, "entered {:?} before the validity ended", until.since(entered));
    check!(state == LeaseState::Lost, "the next entered when the holder read {state:?}");
    drop(guard);
    next.release().await?;
    Ok(())
}

pub(super) async fn hung_renewals_are_lost_on_time_and_before_anyone_enters<H: Harness>(
    site: Site<H>,
) -> Verdict {
    lost_on_time_and_before_anyone_enters(site, Fault::Hangs).await
}

pub(super) async fn failing_renewals_are_lost_on_time_and_before_anyone_enters<H: Harness>(
    site: Site<H>,
) -> Verdict {
    lost_on_time_and_before_anyone_enters(site, Fault::Fails).await
}

pub(super) async fn a_session_that_ends_is_lost_at_once<H: Harness>(site: Site<H>) -> Verdict {
    let (holder, faults) = site.faulty().await?;
    let guard = holder.acquire(job()?).ttl(site.long_ttl()).await?;
    faults.end_sessions();
    soon("lost", guard.lost()).await?;
    check!(guard.state() == LeaseState::Lost, "the state is {:?}", guard.state());
    let answer = guard.run(async {}).await;
    check!(
        answer.is_err_and(|error| error.kind() == ErrorKind::Lost),
        "work was done after the loss"
    );
    // Ours in the store still: it is given back.
    drop(guard);
    let (guard, _) = enter(&site.locker().await?, &job()?, site.long_ttl()).await?;
    guard.release().await?;
    Ok(())
}

pub(super) async fn lost_is_final<H: Harness>(site: Site<H>) -> Verdict {
    let (holder, faults) = site.faulty().await?;
    faults.keep(Call::Renew, Fault::Fails);
    let guard = holder.acquire(job()?).ttl(site.short_ttl()).await?;
    soon("lost", guard.lost()).await?;
    let renewals = guard.renewals();
    faults.heal();
    clock::sleep(site.short_ttl().get()).await;
    check!(guard.state() == LeaseState::Lost, "lost, and then {:?}", guard.state());
    check!(guard.renewals() == renewals, "renewed after the loss");
    check!(guard.remaining().is_zero(), "{:?} are left after the loss", guard.remaining());
    soon("lost again", guard.lost()).await?;
    let answer = guard.release().await;
    check!(answer.is_err_and(|error| error.kind() == ErrorKind::Lost), "released after the loss");
    Ok(())
}

pub(super) async fn lost_never_fires_after_a_release<H: Harness>(site: Site<H>) -> Verdict {
    let ttl = site.short_ttl();
    let guard = site.locker().await?.acquire(job()?).ttl(ttl).await?;
    let signal = guard.signal();
    guard.release().await?;
    check!(clock::within(ttl.get() * 2, signal.lost()).await.is_err(), "lost after a release");
    check!(signal.state() == LeaseState::Released, "the state is {:?}", signal.state());
    check!(signal.valid_until().is_none(), "released, and yet valid");
    Ok(())
}

struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

pub(super) async fn run_ends_its_work_when_the_lease_is_lost<H: Harness>(site: Site<H>) -> Verdict {
    let (holder, faults) = site.faulty().await?;
    faults.keep(Call::Renew, Fault::Hangs);
    let guard = holder.acquire(job()?).ttl(site.short_ttl()).await?;
    let ended = AtomicBool::new(false);
    let work = async {
        let _ended = SetOnDrop(&ended);
        std::future::pending::<()>().await;
    };
    let answer = soon("the end of the work", guard.run(work)).await?;
    check!(
        answer.is_err_and(|error| error.kind() == ErrorKind::Lost),
        "the work ended without a loss"
    );
    check!(ended.load(Ordering::SeqCst), "the work lives on after the loss");
    Ok(())
}

/// The caller is away for so long that the validity ends before it looks at the answer, and somebody else enters.
pub(super) async fn a_grant_that_is_lost_on_its_way_is_asked_for_again<H: Harness>(
    site: Site<H>,
) -> Verdict {
    let (locker, faults) = site.faulty().await?;
    faults.keep(Call::Renew, Fault::Fails);
    faults.plan(Call::Acquire, Fault::Delays(Duration::from_millis(50)), 1);
    let mut acquire = locker.acquire(job()?).ttl(site.short_ttl()).wait(PATIENCE).into_future();
    let first = poll_fn(|context| Poll::Ready(acquire.as_mut().poll(context).is_ready())).await;
    check!(!first, "granted without a call");
    eventually("the first grant", || faults.grants().len() == 1).await?;
    let (other, _) = enter(&site.locker().await?, &job()?, site.long_ttl()).await?;
    faults.heal();
    let early = clock::within(Duration::from_millis(300), acquire.as_mut()).await;
    check!(early.is_err(), "did not wait for its second grant: {early:?}");
    other.release().await?;
    let guard = soon("the second grant", acquire).await??;
    check!(guard.state() == LeaseState::Held, "handed out {:?}", guard.state());
    check!(faults.grants().len() == 2, "{} grants", faults.grants().len());
    guard.release().await?;
    Ok(())
}
