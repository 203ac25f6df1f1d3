//! Giving back: released, not held, or unknown.

use super::super::{
    Harness,
    case::{Failure, Verdict, check},
    faulty::{Call, Fault},
    site::{Site, enter, eventually, job, soon},
};
use crate::{ErrorKind, Instant, LeaseState, Ttl};

pub(super) async fn release_says_released_and_frees<H: Harness>(site: Site<H>) -> Verdict {
    let (first, second) = (site.locker().await?, site.locker().await?);
    for _ in 0..3 {
        let guard = first.try_acquire(job()?).ttl(site.long_ttl()).await?;
        let signal = guard.signal();
        guard.release().await?;
        check!(signal.state() == LeaseState::Released, "the state is {:?}", signal.state());
        second.try_acquire(job()?).ttl(site.long_ttl()).await?.release().await?;
    }
    Ok(())
}

pub(super) async fn a_release_after_the_loss_says_so_and_frees_nobody_elses<H: Harness>(
    site: Site<H>,
) -> Verdict {
    let ((first, faults), second) = (site.faulty().await?, site.locker().await?);
    faults.keep(Call::Renew, Fault::Hangs);
    let guard = first.acquire(job()?).ttl(site.short_ttl()).await?;
    let (next, _) = enter(&second, &job()?, site.long_ttl()).await?;
    let answer = guard.release().await;
    check!(answer.as_ref().is_err_and(|error| error.kind() == ErrorKind::Lost), "{answer:?}");
    eventually("the release of what was lost", || faults.count(Call::Release) == 1).await?;
    still_held(&site, next).await
}

async fn still_held<H: Harness>(site: &Site<H>, guard: super::super::site::GuardOf<H>) -> Verdict {
    let answer = site.locker().await?.try_acquire(job()?).await;
    let contended = answer.as_ref().is_err_and(|error| error.kind() == ErrorKind::Contended);
    check!(contended, "somebody else's release freed it: {answer:?}");
    guard.release().await?;
    Ok(())
}

pub(super) async fn a_lost_reply_of_a_release_says_unknown<H: Harness>(site: Site<H>) -> Verdict {
    let ((first, faults), second) = (site.faulty().await?, site.locker().await?);
    faults.plan(Call::Release, Fault::LosesReply, 1);
    let ttl = Ttl::default().min(site.long_ttl());
    let guard = first.acquire(job()?).ttl(ttl).await?;
    let answer = guard.release().await;
    let unknown = answer.as_ref().is_err_and(|error| error.kind() == ErrorKind::Indeterminate);
    check!(unknown, "{answer:?}");
    let (next, _) = enter(&second, &job()?, site.long_ttl()).await?;
    eventually("asked again", || faults.count(Call::Release) >= 2).await?;
    still_held(&site, next).await
}

pub(super) async fn a_failed_release_is_asked_again<H: Harness>(site: Site<H>) -> Verdict {
    let ((first, faults), second) = (site.faulty().await?, site.locker().await?);
    faults.plan(Call::Release, Fault::Fails, 2);
    let ttl = Ttl::default().min(site.long_ttl());
    let guard = first.acquire(job()?).ttl(ttl).await?;
    let end = guard.valid_until().ok_or_else(|| Failure::new("lost at once"))?;
    let answer = soon("an answer", guard.release()).await?;
    let unknown = answer.as_ref().is_err_and(|error| error.kind() == ErrorKind::Indeterminate);
    check!(unknown, "{answer:?}");
    let (next, _) = enter(&second, &job()?, site.long_ttl()).await?;
    check!(Instant::now() < end, "freed by the TTL alone");
    check!(faults.count(Call::Release) == 3, "released {} times", faults.count(Call::Release));
    next.release().await?;
    Ok(())
}
