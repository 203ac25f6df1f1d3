//! What a trial has at hand.

use std::{error::Error as _, io};

use cerrojo::{
    ApproximateGuard, Error, Locker, OwnerId, Result,
    backend::redlock::{Redlock, Status, Summary},
};
use cerrojo_testbed::{Proxy, RedisBuilder, RedisServer};

#[path = "../trials/mod.rs"]
#[allow(dead_code, reason = "each test target uses a part")]
mod trials;

pub(crate) use trials::{
    LONG, Outcome, bounded, check_error,
    child::{child_main, opened, say},
    eventually, goes_on, is_lost, kind, millis, run, runtime, trial, ttl, works,
};

pub(crate) type Locks = Locker<Redlock>;

/// A server behind a proxy.
pub(crate) struct Node {
    pub(crate) server: RedisServer,
    pub(crate) proxy: Proxy,
}

impl Node {
    pub(crate) fn of(builder: &RedisBuilder) -> io::Result<Self> {
        let server = builder.start()?;
        let proxy = Proxy::start(server.port())?;
        Ok(Self { server, proxy })
    }

    /// Cannot be reached, and ends the connections that there are.
    pub(crate) fn go_down(&self) -> io::Result<()> {
        self.proxy.refuse()?;
        self.proxy.reset()
    }

    pub(crate) fn has_key(&self, key: &str) -> io::Result<bool> {
        Ok(self.server.command(&["EXISTS", key])? == "1")
    }

    /// Who has a lock here, as all 32 digits.
    pub(crate) fn owner_of(&self, name: &str) -> io::Result<String> {
        let value = self.server.command(&["GET", &key(name)])?.to_string();
        Ok(value.chars().take(32).collect())
    }
}

/// The key of a lock.
pub(crate) fn key(name: &str) -> String {
    format!("cerrojo:{{{name}}}")
}

/// Several nodes of one store.
pub(crate) struct Fleet {
    pub(crate) nodes: Vec<Node>,
}

impl Fleet {
    pub(crate) fn start(nodes: usize) -> io::Result<Self> {
        Self::of(nodes, &RedisServer::builder())
    }

    pub(crate) fn of(nodes: usize, builder: &RedisBuilder) -> io::Result<Self> {
        let nodes: io::Result<_> = (0..nodes).map(|_| Node::of(builder)).collect();
        Ok(Self { nodes: nodes? })
    }

    /// All nodes, with these options; others that a trial is not about suit servers started a moment ago on a busy machine.
    pub(crate) fn url(&self, options: &str) -> String {
        let hosts: Vec<_> = self.nodes.iter().map(|node| node.proxy.address()).collect();
        let mut url = format!("redlock://{}?{options}", hosts.join(","));
        for other in ["restart_grace_ms=0", "node_limit_ms=1000", "call_limit_ms=2000"] {
            let (name, _) = other.split_once('=').unwrap();
            if !options.contains(name) {
                url = format!("{url}&{other}");
            }
        }
        url
    }

    /// Connections of its own.
    pub(crate) async fn locks(&self) -> Result<Locks> {
        connect(&self.url("")).await
    }

    /// At how many nodes this owner has the lock.
    pub(crate) fn held_at(&self, name: &str, owner: OwnerId) -> usize {
        let owner = owner.to_hex();
        let has = |node: &&Node| node.owner_of(name).is_ok_and(|there| there == owner);
        self.nodes.iter().filter(has).count()
    }

    /// At how many nodes anybody has the lock.
    pub(crate) fn keys(&self, name: &str) -> usize {
        self.nodes.iter().filter(|node| node.has_key(&key(name)).unwrap_or(true)).count()
    }

    /// The owner has the lock everywhere: whoever was late to grant it, or had lost it, has it by now.
    pub(crate) async fn held_everywhere(&self, name: &str, guard: &ApproximateGuard) -> Outcome {
        let all = self.nodes.len();
        eventually("held everywhere", || Ok(self.held_at(name, guard.owner()) == all)).await
    }

    pub(crate) async fn held_nowhere(&self, name: &str) -> Outcome {
        eventually("held nowhere", || Ok(self.keys(name) == 0)).await
    }
}

/// A locker with connections of its own.
pub(crate) async fn connect(url: &str) -> Result<Locks> {
    trials::connected(|| Redlock::connect(url)).await.map(Locker::new)
}

/// Why there was no grant.
pub(crate) fn summary(error: &Error) -> Outcome<Summary> {
    let found = error.source().and_then(|source| source.downcast_ref::<Summary>());
    found.cloned().ok_or_else(|| format!("no summary in {error:?}").into())
}

/// The summary of one attempt that is refused.
pub(crate) async fn refused(locks: &Locks, name: &str, status: Status) -> Outcome<Summary> {
    let error = locks.try_acquire(name).ttl(ttl(30_000)).await.err().ok_or("granted")?;
    let summary = summary(&error)?;
    if summary.status != status {
        return Err(format!("{status:?} was expected, not {summary}").into());
    }
    Ok(summary)
}
