//! The locks of each library, used alike.

use std::time::Duration;

use cerrojo::{AnyLocker, ApproximateGuard, Erased, ErrorKind, Locker, NoToken, Options, Ttl};
use cerrojo_bench::peer::Peer;
use redis::{Script, aio::MultiplexedConnection};
use rslock::{LockError, LockGuard, LockManager};

use super::{Job, connect, now, url};
use crate::Result;

/// A library's lock, ready to be used by many tasks.
#[derive(Clone)]
pub(super) enum Locks {
    Ours(Locker<Erased<NoToken>>),
    Raw(Raw),
    Rslock(LockManager),
    NoLock,
}

pub(super) enum Held {
    Ours(ApproximateGuard),
    Raw { name: String, owner: u64 },
    Rslock(LockGuard),
    NoLock,
}

/// Two scripts on one connection.
#[derive(Clone)]
pub(super) struct Raw {
    connection: MultiplexedConnection,
    take: Script,
    give: Script,
}

impl Locks {
    pub(super) async fn open(job: &Job) -> Result<Self> {
        match job.peer {
            Peer::Ours => Ok(Self::Ours(ours(job).await?)),
            Peer::Raw => Ok(Self::Raw(Raw::new(connect(job.one_node()?).await?))),
            Peer::Rslock => Ok(Self::Rslock(rslock(job).await?)),
            Peer::NoLock => Ok(Self::NoLock),
            other => Err(format!("{other} has a program of its own").into()),
        }
    }

    /// Waits as the library waits; raw scripts do not.
    pub(super) async fn acquire(&self, name: &str, ttl_ms: u64) -> Result<Held> {
        let ttl = Duration::from_millis(ttl_ms);
        match self {
            Self::Ours(locks) => {
                Ok(Held::Ours(locks.acquire(name).ttl(Ttl::try_from(ttl)?).await?))
            }
            Self::Raw(raw) => raw.take(name, ttl_ms).await,
            Self::Rslock(locks) => Ok(Held::Rslock(locks.acquire(name, ttl).await?)),
            Self::NoLock => Ok(Held::NoLock),
        }
    }

    /// Does not wait. None: somebody else has it.
    pub(super) async fn try_acquire(&self, name: &str, ttl_ms: u64) -> Result<Option<Held>> {
        let ttl = Duration::from_millis(ttl_ms);
        match self {
            Self::Ours(locks) => match locks.try_acquire(name).ttl(Ttl::try_from(ttl)?).await {
                Err(error) if error.kind() == ErrorKind::Contended => Ok(None),
                tried => Ok(Some(Held::Ours(tried?))),
            },
            Self::Rslock(locks) => match locks.lock(name, ttl).await {
                Err(LockError::Unavailable) => Ok(None),
                tried => Ok(Some(Held::Rslock(LockGuard { lock: tried? }))),
            },
            Self::Raw(_) | Self::NoLock => Err("only lock libraries are tried".into()),
        }
    }

    pub(super) async fn release(&self, held: Held) -> Result<()> {
        match (self, held) {
            (_, Held::Ours(guard)) => guard.release().await?,
            (Self::Raw(raw), Held::Raw { name, owner }) => raw.give(&name, owner).await?,
            (_, Held::Rslock(guard)) => guard.release().await,
            _ => {}
        }
        Ok(())
    }
}

async fn ours(job: &Job) -> Result<Locker<Erased<NoToken>>> {
    let url = our_url(job);
    match cerrojo::connect(&url, Options::default()).await? {
        AnyLocker::Approximate(locks) => Ok(locks),
        _ => Err(format!("{url} is not an approximate store").into()),
    }
}

/// Nodes that have just been started for this job have forgotten nothing: they vote at once.
fn our_url(job: &Job) -> String {
    let format = job.format.as_ref().map(|format| format!("format={format}")).unwrap_or_default();
    match job.nodes.as_slice() {
        [one] => format!("{}?{format}", url(*one)),
        nodes => {
            let hosts: Vec<_> = nodes.iter().map(|port| format!("127.0.0.1:{port}")).collect();
            format!("redlock://{}?restart_grace_ms=0&{format}", hosts.join(","))
        }
    }
}

async fn rslock(job: &Job) -> Result<LockManager> {
    let mut locks = LockManager::new(job.nodes.iter().map(|port| url(*port)).collect());
    if job.tries {
        locks.set_retry(1, Duration::from_millis(1));
    }
    // It connects when it is first used, which is not to be the first turn.
    locks.query_redis_for_key_value(b"none").await?;
    Ok(locks)
}

impl Raw {
    fn new(connection: MultiplexedConnection) -> Self {
        Self {
            connection,
            take: Script::new("return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])"),
            give: Script::new(
                "return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1])",
            ),
        }
    }

    async fn take(&self, name: &str, ttl_ms: u64) -> Result<Held> {
        let (mut connection, owner) = (self.connection.clone(), now());
        let mut call = self.take.key(name);
        let taken: Option<String> =
            call.arg(owner).arg(ttl_ms).invoke_async(&mut connection).await?;
        taken.ok_or("raw scripts do not wait")?;
        Ok(Held::Raw { name: name.to_owned(), owner })
    }

    async fn give(&self, name: &str, owner: u64) -> Result<()> {
        let mut connection = self.connection.clone();
        let given: bool = self.give.key(name).arg(owner).invoke_async(&mut connection).await?;
        if given { Ok(()) } else { Err("not held any more".into()) }
    }
}
