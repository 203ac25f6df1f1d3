//! What the trials share: a private server, looks at what is in it, and waiters.

use std::{future::Future, io, time::Duration};

use cerrojo::{ApproximateGuard, Drift, Locker, Options, backend::redis::Redis};
use cerrojo_testbed::{RedisServer, Reply};
use libtest_mimic::Trial;

#[path = "../trials/mod.rs"]
#[allow(dead_code, reason = "each test target uses a part")]
mod trials;

pub(crate) use trials::{
    LONG, Outcome,
    child::{child_main, opened, say, talk},
    eventually, kind_of, run, runtime, soon, ttl, until,
};

pub(crate) type Locks = Locker<Redis>;
/// What a trial holds.
pub(crate) type Held = ApproximateGuard;

/// The lock of most trials in the server, its line, and what those in it want.
pub(crate) const LOCK: &str = "cerrojo:{a}";
pub(crate) const LINE: &str = "cerrojo:{a}:line";
pub(crate) const WANTS: &str = "cerrojo:{a}:wants";
/// The server's clock counts whole milliseconds.
const ROUNDING: Duration = Duration::from_millis(1);

/// A trial on a server of its own, in a runtime of its own.
pub(crate) fn trial<F, W>(name: impl Into<String>, proof: F) -> Trial
where
    F: FnOnce(Site) -> W + Send + 'static,
    W: Future<Output = Outcome>,
{
    Trial::test(name, move || {
        let site = Site { server: RedisServer::start()? };
        runtime().block_on(trials::bounded(proof(site)))
    })
}

#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) server: RedisServer,
}

impl Site {
    pub(crate) fn url(&self, options: &str) -> String {
        self.url_at(self.server.port(), options)
    }

    /// The same through somebody who passes things on.
    pub(crate) fn url_at(&self, port: u16, options: &str) -> String {
        format!("redis://127.0.0.1:{port}?{options}")
    }

    /// A locker with a connection of its own.
    pub(crate) async fn locks(&self) -> Outcome<Locks> {
        self.locks_with("").await
    }

    pub(crate) async fn locks_with(&self, options: &str) -> Outcome<Locks> {
        Ok(open(&self.url(options)).await?)
    }

    /// One that hears by way of this port, and asks by it too.
    pub(crate) async fn locks_that_listen_at(&self, port: u16) -> Outcome<Locks> {
        Ok(open(&self.url_at(port, "")).await?)
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

    /// Who has the lock by the server, as all 32 digits.
    pub(crate) async fn owner(&self) -> Outcome<Option<String>> {
        match self.ask(&["GET", LOCK])? {
            Reply::Text(value) => Ok(Some(value.chars().take(32).collect())),
            _ => Ok(None),
        }
    }

    /// For how long the lock is held yet by the server's clock, or a little more.
    pub(crate) async fn kept(&self) -> Outcome<Duration> {
        let kept = u64::try_from(self.number(&["PTTL", LOCK])?).unwrap_or(0);
        Ok(Duration::from_millis(kept) + ROUNDING)
    }

    /// Deletes the lock, and tells nobody.
    pub(crate) async fn free_by_hand(&self) -> Outcome {
        Ok(self.ask(&["DEL", LOCK]).map(drop)?)
    }

    /// How many stand in the line.
    pub(crate) async fn waiting(&self) -> Outcome<i64> {
        self.number(&["ZCARD", LINE])
    }

    pub(crate) async fn until_waiting_in(&self, line: &str, count: i64) -> Outcome {
        let what = format!("{count} in the line");
        eventually(&what, || Ok(self.number(&["ZCARD", line])? == count)).await
    }

    /// Whether nobody in the line asks by itself within the next seconds.
    pub(crate) async fn is_at_rest(&self) -> Outcome<bool> {
        Ok(self.wakes()?.iter().all(|in_ms| *in_ms > 2_200))
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

    /// Holds the lock without a keeper, as a process does that was killed.
    pub(crate) async fn hold_silently(&self, millis: u64) -> Outcome {
        let answer = self.ask(&["SET", LOCK, "somebody", "NX", "PX", &millis.to_string()])?;
        if answer == "OK" { Ok(()) } else { Err("it is held".into()) }
    }
}

/// Without an allowance for drift, so that validity is as long as it can be.
pub(crate) async fn open(url: &str) -> cerrojo::Result<Locks> {
    let mut options = Options::default();
    options.drift = Drift { rate_ppm: 0, fixed: Duration::ZERO };
    Ok(Locker::with_options(Redis::connect(url).await?, options))
}

/// There are none.
pub(crate) fn token_of(_: &Held) -> u64 {
    0
}
