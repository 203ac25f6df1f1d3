//! What trials of stores on servers have in common.

pub(crate) mod child;

use std::{future::Future, process::ExitCode, time::Duration};

use cerrojo::{
    Error, ErrorKind, Guard, Instant, LeaseState, Locker, Result, Token, Ttl, clock, spi::Backend,
};
use cerrojo_testbed::need;
use libtest_mimic::{Arguments, Failed, Trial};

/// Longer than anything takes on a busy machine; it only bounds a trial that fails.
pub(crate) const LONG: Duration = Duration::from_secs(40);
/// No trial takes longer.
const TRIAL_LIMIT: Duration = Duration::from_secs(600);

pub(crate) type Outcome<T = ()> = std::result::Result<T, Failed>;

/// Runs those that are not to be ignored, which without `program` is none of them; so many at a time, since most of a
/// trial is waiting.
pub(crate) fn run(
    program: &str,
    trials: impl IntoIterator<Item = Trial>,
    at_once: usize,
) -> ExitCode {
    let is_missing = need(program).is_ignored();
    let marked = |trial: Trial| {
        let is_ignored = is_missing || trial.has_ignored_flag();
        trial.with_ignored_flag(is_ignored)
    };
    let mut arguments = Arguments::from_args();
    arguments.test_threads = arguments.test_threads.or(Some(at_once));
    libtest_mimic::run(&arguments, trials.into_iter().map(marked).collect()).exit_code()
}

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

/// How many rounds: the short form, or the long one with `CERROJO_TEST_LONG`.
pub(crate) fn rounds(short: u64, long: u64) -> u64 {
    if std::env::var_os("CERROJO_TEST_LONG").is_some() { long } else { short }
}

pub(crate) fn ttl(millis: u64) -> Ttl {
    Ttl::millis(millis).unwrap()
}

pub(crate) fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// What `work` answers, which must be within [`LONG`].
pub(crate) async fn soon<T>(what: &str, work: impl Future<Output = T>) -> Outcome<T> {
    clock::within(LONG, work).await.map_err(|_| format!("{what}: not within {LONG:?}").into())
}

/// Comes true within [`LONG`]; what fails meanwhile is not true yet.
pub(crate) async fn eventually(what: &str, mut is_so: impl FnMut() -> Outcome<bool>) -> Outcome {
    let end = Instant::now() + LONG;
    while !is_true(is_so(), what, end)? {
        clock::sleep(millis(10)).await;
    }
    Ok(())
}

/// The same, for what takes an await to see.
pub(crate) async fn until(what: &str, mut is_so: impl AsyncFnMut() -> Outcome<bool>) -> Outcome {
    let end = Instant::now() + LONG;
    while !is_true(is_so().await, what, end)? {
        clock::sleep(millis(10)).await;
    }
    Ok(())
}

fn is_true(seen: Outcome<bool>, what: &str, end: Instant) -> Outcome<bool> {
    match seen {
        Ok(true) => Ok(true),
        seen if Instant::now() >= end => {
            Err(format!("not within {LONG:?}: {what}: {seen:?}").into())
        }
        _ => Ok(false),
    }
}

/// A busy machine may need longer than a short limit allows.
pub(crate) async fn connected<T, F>(connect: impl Fn() -> F) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    let mut tries = 10;
    loop {
        match connect().await {
            Err(error) if error.kind() != ErrorKind::Invalid && tries > 0 => tries -= 1,
            connected => return connected,
        }
    }
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

pub(crate) fn kind_of<T>(answer: &Result<T>) -> Option<ErrorKind> {
    answer.as_ref().err().map(Error::kind)
}

/// An error of one of these kinds, whose message has all these words.
pub(crate) fn check_error(error: &Error, kinds: &[ErrorKind], words: &[&str]) -> Outcome {
    let said = error.to_string();
    if kinds.contains(&error.kind()) && words.iter().all(|word| said.contains(word)) {
        return Ok(());
    }
    Err(format!("expected {kinds:?} and {words:?}, but {:?}: {said}", error.kind()).into())
}
