//! What a trial has at hand.

use std::io;

use cerrojo::{Error, ErrorKind, Locker, Result, backend::redis::Redis};
use cerrojo_testbed::{Proxy, RedisBuilder, RedisServer};

#[path = "../trials/mod.rs"]
mod trials;

pub(crate) use trials::{
    LONG, Outcome, bounded, child::complaint, child_main, eventually, goes_on, is_lost, kind,
    millis, opened, runtime, say, trial, ttl, works,
};

pub(crate) type Locks = Locker<Redis>;

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

/// An error of one of these kinds, whose message has all these words.
pub(crate) fn check_error(error: &Error, kinds: &[ErrorKind], words: &[&str]) -> Outcome {
    let said = format!("{error} | {error:?}");
    if kinds.contains(&error.kind()) && words.iter().all(|word| said.contains(word)) {
        return Ok(());
    }
    Err(format!("expected {kinds:?} and {words:?}, but {:?}: {said}", error.kind()).into())
}
