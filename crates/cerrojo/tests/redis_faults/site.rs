//! What a trial has at hand.

use std::io;

use cerrojo::{Locker, Result, backend::redis::Redis};
use cerrojo_testbed::{Proxy, RedisBuilder, RedisServer};

#[path = "../trials/mod.rs"]
#[allow(dead_code, reason = "each test target uses a part")]
mod trials;

pub(crate) use trials::{
    LONG, Outcome, bounded, check_error,
    child::{child_main, opened, say, talk},
    eventually, goes_on, is_lost, kind, millis, run, runtime, trial, ttl, works,
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

    pub(crate) fn has_key(&self, key: &str) -> Outcome<bool> {
        Ok(self.server.command(&["EXISTS", key])? == "1")
    }
}

/// A locker with a connection of its own.
pub(crate) async fn connect(url: &str) -> Result<Locks> {
    trials::connected(|| Redis::connect(url)).await.map(Locker::new)
}
