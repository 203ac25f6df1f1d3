//! What the trials share: a private server, looks at what is in it, and waiters.

use std::{future::Future, io, time::Duration};

use cerrojo::{
    ApproximateGuard, Drift, Error, ErrorKind, Instant, Locker, Options, Ttl,
    backend::redis::Redis, clock,
};
use cerrojo_testbed::{RedisServer, Reply};
use libtest_mimic::{Failed, Trial};
use tokio::task::JoinHandle;

pub(crate) type Outcome<T = ()> = Result<T, Failed>;

/// Longer than anything takes on a busy machine; it only bounds a trial that fails.
pub(crate) const LONG: Duration = Duration::from_secs(30);
/// How long a lock that was handed over is the waiter's before it has confirmed.
pub(crate) const PROVISIONAL: Duration = Duration::from_secs(2);
/// The lock of most trials, its line, and what those in it want.
pub(crate) const NAME: &str = "a";
pub(crate) const LOCK: &str = "cerrojo:{a}";
pub(crate) const LINE: &str = "cerrojo:{a}:line";
pub(crate) const WANTS: &str = "cerrojo:{a}:wants";

/// A trial on a server of its own, in a runtime of its own.
pub(crate) fn trial<F, W>(name: impl Into<String>, proof: F) -> Trial
where
    F: FnOnce(Site) -> W + Send + 'static,
    W: Future<Output = Outcome>,
{
    Trial::test(name, move || {
        let site = Site { server: RedisServer::start()? };
        runtime().block_on(proof(site))
    })
}

pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

pub(crate) fn ttl(millis: u64) -> Ttl {
    Ttl::millis(millis).unwrap()
}

pub(crate) fn kind_of<T>(answer: &cerrojo::Result<T>) -> Option<ErrorKind> {
    answer.as_ref().err().map(Error::kind)
}

/// What `work` answers, which must be within [`LONG`].
pub(crate) async fn soon<T>(what: &str, work: impl Future<Output = T>) -> Outcome<T> {
    clock::within(LONG, work).await.map_err(|_| format!("{what}: not within {LONG:?}").into())
}

/// Looks until `is_so` says yes, which must be within [`LONG`].
pub(crate) async fn eventually(what: &str, mut is_so: impl FnMut() -> Outcome<bool>) -> Outcome {
    let end = Instant::now() + LONG;
    while !is_so()? {
        if Instant::now() >= end {
            return Err(format!("{what}: not within {LONG:?}").into());
        }
        clock::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) server: RedisServer,
}

impl Site {
    pub(crate) fn url(&self, options: &str) -> String {
        format!("redis://{}?{options}", self.server.address())
    }

    /// A locker with a connection of its own.
    pub(crate) async fn locks(&self) -> Outcome<Locker<Redis>> {
        self.locks_with("").await
    }

    pub(crate) async fn locks_with(&self, options: &str) -> Outcome<Locker<Redis>> {
        Ok(open(&self.url(options)).await?)
    }

    pub(crate) fn ask(&self, words: &[&str]) -> io::Result<Reply> {
        self.server.command(words)
    }

    pub(crate) fn number(&self, words: &[&str]) -> Outcome<i64> {
        match self.ask(words)? {
            Reply::Integer(number) => Ok(number),
            other => Err(format!("{words:?}: {other}").into()),
        }
    }

    /// Waits until so many stand in the line.
    pub(crate) async fn until_waiting(&self, count: i64) -> Outcome {
        self.until_waiting_in(LINE, count).await
    }

    pub(crate) async fn until_waiting_in(&self, line: &str, count: i64) -> Outcome {
        let what = format!("{count} in the line");
        eventually(&what, || Ok(self.number(&["ZCARD", line])? == count)).await
    }

    /// Waits until nobody in the line asks by itself within the next seconds.
    pub(crate) async fn until_at_rest(&self) -> Outcome {
        eventually("a line at rest", || Ok(self.wakes()?.iter().all(|in_ms| *in_ms > 2_200))).await
    }

    /// In how many ms each waiter asks by itself.
    fn wakes(&self) -> Outcome<Vec<i64>> {
        const SCRIPT: &str = "local t = redis.call('TIME') \
            local now = t[1] * 1000 + math.floor(t[2] / 1000) \
            local found = {} \
            for _, want in ipairs(redis.call('HVALS', KEYS[1])) do \
              table.insert(found, tonumber(string.match(want, '^%d+ (%d+) ')) - now) \
            end return found";
        match self.ask(&["EVAL", SCRIPT, "1", WANTS])? {
            Reply::List(wakes) => wakes
                .into_iter()
                .map(|wake| match wake {
                    Reply::Integer(wake) => Ok(wake),
                    other => Err(format!("no number: {other}").into()),
                })
                .collect(),
            other => Err(format!("no list: {other}").into()),
        }
    }

    /// Holds [`NAME`] without a keeper, as a process does that was killed.
    pub(crate) fn hold_silently(&self, millis: u64) -> Outcome {
        let answer = self.ask(&["SET", LOCK, "somebody", "NX", "PX", &millis.to_string()])?;
        if answer == "OK" { Ok(()) } else { Err("it is held".into()) }
    }
}

/// Without an allowance for drift, so that validity is as long as it can be.
pub(crate) async fn open(url: &str) -> cerrojo::Result<Locker<Redis>> {
    let mut options = Options::default();
    options.drift = Drift { rate_ppm: 0, fixed: Duration::ZERO };
    Ok(Locker::with_options(Redis::connect(url).await?, options))
}

/// A guard, and when its waiter got it.
pub(crate) type Entered = (ApproximateGuard, Instant);

/// A task that waits for [`NAME`].
pub(crate) struct Waiter(JoinHandle<cerrojo::Result<Entered>>);

impl Waiter {
    pub(crate) fn start(locks: &Locker<Redis>, ttl: Ttl) -> Self {
        let locks = locks.clone();
        Self(tokio::spawn(async move {
            let guard = locks.acquire(NAME).ttl(ttl).wait(LONG * 2).await?;
            Ok((guard, Instant::now()))
        }))
    }

    /// What it got, within [`LONG`].
    pub(crate) async fn entered(self) -> Outcome<Entered> {
        Ok(soon("a waiter", self.0).await???)
    }

    pub(crate) fn is_waiting(&self) -> bool {
        !self.0.is_finished()
    }

    /// Gives up, also what it has got meanwhile.
    pub(crate) fn abort(self) {
        self.0.abort();
    }
}
