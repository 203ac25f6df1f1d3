//! Taking a lock from its holder.

use super::super::{
    Harness,
    case::{Failure, Verdict, check},
    site::{Site, enter, job, soon},
};
use crate::{Break, ErrorKind, LeaseState};

pub(super) async fn break_now_frees_at_once_and_the_holder_reads_lost<H: Harness>(
    site: Site<H>,
) -> Verdict {
    let (holder, other) = (site.locker().await?, site.locker().await?);
    // Long enough that nothing but the break frees it, short enough to see the next renewal.
    let ttl = (site.short_ttl().get() * 12).try_into()?;
    let guard = holder.acquire(job()?).ttl(ttl).await?;
    let until = guard.valid_until().ok_or_else(|| Failure::new("lost at once"))?;
    let broken = other.break_lock(&job()?, Break::Now).await?;
    check!(broken.is_some_and(|broken| broken.name.as_str() == "job"), "nothing was broken");
    let next = other.try_acquire(job()?).ttl(site.long_ttl()).await?;
    soon("lost", guard.lost()).await?;
    check!(crate::Instant::now() < until, "the refused renewal was not taken for a loss");
    let answer = guard.release().await;
    check!(answer.is_err_and(|error| error.kind() == ErrorKind::Lost), "released what was broken");
    let answer = holder.try_acquire(job()?).await;
    check!(answer.is_err(), "the broken holder's release freed the next one's lock");
    check!(next.state() == LeaseState::Held, "the next reads {:?}", next.state());
    next.release().await?;
    Ok(())
}

pub(super) async fn break_at_expiry_frees_when_the_old_validity_ends<H: Harness>(
    site: Site<H>,
) -> Verdict {
    let (holder, other) = (site.locker().await?, site.locker().await?);
    let ttl = (site.short_ttl().get() * 2).try_into()?;
    let guard = holder.acquire(job()?).ttl(ttl).await?;
    let until = guard.valid_until().ok_or_else(|| Failure::new("lost at once"))?;
    check!(other.break_lock(&job()?, Break::AtExpiry).await?.is_some(), "nothing was broken");
    let shown = other.holder(&job()?).await?;
    check!(shown.is_none_or(|holder| holder.broken), "a broken lock is not shown as broken");
    let refused = other.try_acquire(job()?).await;
    check!(refused.is_err() || crate::Instant::now() >= until, "free before the validity ended");
    drop(refused);
    let (next, entered) = enter(&other, &job()?, site.long_ttl()).await?;
    check!(entered >= until, "entered {:?} before the validity ended", until.since(entered));
    check!(guard.state() == LeaseState::Lost, "the holder reads {:?}", guard.state());
    soon("lost", guard.lost()).await?;
    drop(guard);
    next.release().await?;
    Ok(())
}

pub(super) async fn break_at_expiry_is_ended_by_the_holders_release<H: Harness>(
    site: Site<H>,
) -> Verdict {
    let (holder, other) = (site.locker().await?, site.locker().await?);
    let guard = holder.acquire(job()?).ttl(site.long_ttl()).await?;
    check!(other.break_lock(&job()?, Break::AtExpiry).await?.is_some(), "nothing was broken");
    guard.release().await?;
    let (next, _) = enter(&other, &job()?, site.long_ttl()).await?;
    next.release().await?;
    Ok(())
}

pub(super) async fn breaking_what_is_free_breaks_nothing<H: Harness>(site: Site<H>) -> Verdict {
    let locker = site.locker().await?;
    for when in [Break::Now, Break::AtExpiry] {
        check!(locker.break_lock(&job()?, when).await?.is_none(), "{when:?} broke what is free");
        let guard = locker.try_acquire(job()?).ttl(site.short_ttl()).await?;
        let answer = guard.run(crate::clock::sleep(site.short_ttl().get())).await;
        check!(answer.is_ok(), "{when:?} of a free lock broke the next grant");
        guard.release().await?;
    }
    Ok(())
}
