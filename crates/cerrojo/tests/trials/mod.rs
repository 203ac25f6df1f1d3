//! What trials of stores on servers have in common.

pub(crate) mod child;

use std::{future::Future, io, time::Duration};

use cerrojo::{
    ErrorKind, Guard, Instant, LeaseState, Locker, Result, Token, Ttl, clock, spi::Backend,
};
use libtest_mimic::{Failed, Trial};

pub(crate) use child::{child_main, opened, say};

/// Longer than anything takes on a busy machine; it only bounds a test that fails.
pub(crate) const LONG: Duration = Duration::from_secs(30);
/// No trial takes longer.
const TRIAL_LIMIT: Duration = Duration::from_secs(150);

pub(crate) type Outcome = std::result::Result<(), Failed>;
pub(crate) fn trial<F: Future<Output = Outcome> + 'static>(name: &str, proof: fn() -> F) -> Trial {
    Trial::test(name, move || runtime().block_on(bounded(proof())))
}

pub(crate) async fn bounded(proof: impl Future<Output = Outcome>) -> Outcome {
    clock::within(TRIAL_LIMIT, proof).await?
}

/// A runtime whose keepers run while the trial itself blocks.
pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

pub(crate) fn ttl(millis: u64) -> Ttl {
    Ttl::millis(millis).unwrap()
}

pub(crate) fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Comes true within [`LONG`]; what fails meanwhile is not true yet.
pub(crate) async fn eventually(what: &str, mut is_so: impl FnMut() -> io::Result<bool>) -> Outcome {
    let end = Instant::now() + LONG;
    while Instant::now() < end {
        if is_so().unwrap_or(false) {
            return Ok(());
        }
        clock::sleep(millis(10)).await;
    }
    Err(format!("not within {LONG:?}: {what}").into())
}

/// The lock is ours now and its renewals go on.
pub(crate) async fn goes_on<T: Token>(guard: &Guard<T>) -> Outcome {
    let before = guard.renewals();
    eventually("two renewals", || Ok(guard.renewals() >= before + 2)).await?;
    assert_ne!(guard.state(), LeaseState::Lost);
    Ok(())
}

/// Reads lost, which is final.
pub(crate) async fn is_lost<T: Token>(guard: &Guard<T>) -> Outcome {
    clock::within(LONG, guard.lost()).await?;
    assert_eq!((guard.state(), guard.valid_until()), (LeaseState::Lost, None));
    Ok(())
}

/// All of it works: a new grant, its renewals, its release, and the next grant.
pub(crate) async fn works<B: Backend>(locks: &Locker<B>, name: &str) -> Outcome {
    let guard = locks.acquire(name).ttl(ttl(6_000)).wait(LONG).await?;
    goes_on(&guard).await?;
    guard.release().await?;
    Ok(locks.acquire(name).wait(LONG).await?.release().await?)
}

pub(crate) fn kind<T>(answer: Result<T>) -> Option<ErrorKind> {
    answer.err().map(|error| error.kind())
}
