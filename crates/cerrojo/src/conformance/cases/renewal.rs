//! A lease lives for as long as it is renewed.

use std::time::Duration;

use super::super::{
    Harness,
    case::{Failure, Verdict, check},
    faulty::{Call, Fault},
    site::{Site, eventually, job},
};
use crate::{
    ErrorKind, Guard, Instant, LeaseState, Locker, LostSignal, Token, clock, spi::Backend,
};

/// Looks for a second holder until `end`.
async fn nobody_enters<B: Backend>(
    locker: &Locker<B>,
    signal: &LostSignal,
    end: Instant,
) -> Verdict {
    while Instant::now() < end {
        let answer = locker.try_acquire(job()?).await;
        let refused = answer.as_ref().is_err_and(|error| error.kind() == ErrorKind::Contended);
        check!(refused, "somebody else was answered {answer:?}");
        check!(signal.state() != LeaseState::Lost, "lost after {} renewals", signal.renewals());
        clock::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

async fn release<T: Token>(guard: Guard<T>) -> Verdict {
    check!(guard.state() == LeaseState::Held, "the state is {:?}", guard.state());
    Ok(guard.release().await?)
}

pub(super) async fn a_lease_lives_20_ttls<H: Harness>(site: Site<H>) -> Verdict {
    let (holder, other) = (site.locker().await?, site.locker().await?);
    let ttl = site.short_ttl();
    let guard = holder.acquire(job()?).ttl(ttl).await?;
    nobody_enters(&other, &guard.signal(), Instant::now() + ttl.get() * 20).await?;
    check!(guard.renewals() >= 20, "only {} renewals", guard.renewals());
    release(guard).await
}

/// Lives for 4 TTLs although renewals fail in this way at times.
async fn lives_on<H: Harness>(site: &Site<H>, fault: Fault) -> Verdict {
    let ((holder, faults), other) = (site.faulty().await?, site.locker().await?);
    let ttl = site.short_ttl();
    let guard = holder.acquire(job()?).ttl(ttl).await?;
    for _ in 0..2 {
        let failed_after = faults.count(Call::Renew);
        faults.plan(Call::Renew, fault, 1);
        nobody_enters(&other, &guard.signal(), Instant::now() + ttl.get() * 2).await?;
        check!(
            faults.count(Call::Renew) > failed_after + 1,
            "a failed renewal was not tried again"
        );
    }
    eventually("held again", || guard.state() == LeaseState::Held).await?;
    release(guard).await
}

pub(super) async fn a_lease_lives_on_after_one_failed_renewal<H: Harness>(
    site: Site<H>,
) -> Verdict {
    lives_on(&site, Fault::Fails).await
}

pub(super) async fn a_lost_reply_of_a_renewal_is_no_loss<H: Harness>(site: Site<H>) -> Verdict {
    lives_on(&site, Fault::LosesReply).await
}

pub(super) async fn a_lease_at_risk_is_seen_and_heals<H: Harness>(site: Site<H>) -> Verdict {
    let (holder, faults) = site.faulty().await?;
    let ttl = (site.short_ttl().get() * 4).try_into()?;
    faults.keep(Call::Renew, Fault::Fails);
    let guard = holder.acquire(job()?).ttl(ttl).await?;
    let until = guard.valid_until().ok_or_else(|| Failure::new("lost at once"))?;
    check!(guard.state() == LeaseState::Held, "the state is {:?}", guard.state());
    eventually("at risk", || guard.state() == LeaseState::AtRisk).await?;
    check!(guard.valid_until() == Some(until), "a failed renewal moved the validity");
    check!(guard.run(async { 7 }).await? == 7, "work is not done at risk");
    faults.heal();
    eventually("held again", || guard.state() == LeaseState::Held).await?;
    check!(guard.valid_until() > Some(until), "the renewal did not lengthen the validity");
    check!(guard.renewals() == 1, "{} renewals worked", guard.renewals());
    release(guard).await
}
