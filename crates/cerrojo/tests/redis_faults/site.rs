//! What a trial has at hand.

use std::{future::Future, io, time::Duration};

use cerrojo::{
    ApproximateGuard, Error, ErrorKind, Instant, LeaseState, Locker, Result, Ttl,
    backend::redis::Redis, clock,
};
use cerrojo_testbed::{Proxy, RedisBuilder, RedisServer};
use libtest_mimic::{Failed, Trial};

/// Longer than anything takes on a busy machine; it only bounds a test that fails.
pub(crate) const LONG: Duration = Duration::from_secs(30);
/// No trial takes longer.
const TRIAL_LIMIT: Duration = Duration::from_secs(150);

pub(crate) type Outcome = std::result::Result<(), Failed>;
pub(crate) type Locks = Locker<Redis>;

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

/// A server behind a proxy.
pub(crate) struct Site {
    pub(crate) server: RedisServer,
    pub(crate) proxy: Proxy,
}

impl Site {
    pub(crate) fn start() -> io::Result<Self> {
        Self::of(&RedisServer::builder())
    }

    pub(crate) fn of(builder: &RedisBuilder) -> io::Result<Self> {
        let server = builder.start()?;
        let proxy = Proxy::start(server.port())?;
        Ok(Self { server, proxy })
    }

    /// Through the proxy, with these options.
    pub(crate) fn url(&self, options: &str) -> String {
        format!("redis://{}?{options}", self.proxy.address())
    }

    /// A connection of its own, with a short limit for calls.
    pub(crate) async fn locks(&self) -> Result<Locks> {
        connect(&self.url("call_limit_ms=500")).await
    }

    pub(crate) fn has_key(&self, key: &str) -> io::Result<bool> {
        Ok(self.server.command(&["EXISTS", key])? == "1")
    }
}

/// A busy machine may need longer than a short limit allows.
pub(crate) async fn connect(url: &str) -> Result<Locks> {
    let mut tries = 10;
    loop {
        match Redis::connect(url).await {
            Err(error) if error.kind() == ErrorKind::Unavailable && tries > 0 => tries -= 1,
            connected => return connected.map(Locker::new),
        }
    }
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
pub(crate) async fn goes_on(guard: &ApproximateGuard) -> Outcome {
    let before = guard.renewals();
    eventually("two renewals", || Ok(guard.renewals() >= before + 2)).await?;
    assert_ne!(guard.state(), LeaseState::Lost);
    Ok(())
}

/// Reads lost, which is final.
pub(crate) async fn is_lost(guard: &ApproximateGuard) -> Outcome {
    clock::within(LONG, guard.lost()).await?;
    assert_eq!((guard.state(), guard.valid_until()), (LeaseState::Lost, None));
    Ok(())
}

/// All of it works: a new grant, its renewals, its release, and the next grant.
pub(crate) async fn works(locks: &Locks, name: &str) -> Outcome {
    let guard = locks.acquire(name).ttl(ttl(1_500)).wait(LONG).await?;
    goes_on(&guard).await?;
    guard.release().await?;
    Ok(locks.acquire(name).wait(LONG).await?.release().await?)
}

pub(crate) fn kind<T>(answer: Result<T>) -> Option<ErrorKind> {
    answer.err().map(|error| error.kind())
}

/// An error of one of these kinds, whose message has all these words.
pub(crate) fn check_error(error: &Error, kinds: &[ErrorKind], words: &[&str]) -> Outcome {
    let said = format!("{error} | {error:?}");
    if kinds.contains(&error.kind()) && words.iter().all(|word| said.contains(word)) {
        return Ok(());
    }
    Err(format!("expected {kinds:?} and {words:?}, but {:?}: {said}", error.kind()).into())
}
