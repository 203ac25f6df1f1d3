//! The locks of each library, used alike.

use std::{sync::Arc, time::Duration};

use cerrojo::{ApproximateGuard, ErrorKind, Wait};
use cerrojo_bench::peer::Peer;
use rslock::{LockError, LockGuard, LockManager};

use super::{
    Job,
    ours::Ours,
    redis::{self, Raw},
    sql::Sql,
};
use crate::Result;

/// A library's lock, as one task uses it.
#[derive(Clone)]
pub(super) enum Locks {
    Ours(Ours),
    Raw(Raw),
    Rslock(LockManager),
    Sql(Arc<Sql>),
    NoLock,
}

pub(super) enum Held {
    Ours(ApproximateGuard),
    Raw { name: String, owner: u64 },
    Rslock(LockGuard),
    Sql { name: String, owner: i64 },
    NoLock,
}

impl Locks {
    /// One for each task: all have the same, but for SQL, where each has a connection of its own.
    pub(super) async fn open(job: &Job) -> Result<Vec<Self>> {
        let Some(url) = job.url.as_ref().filter(|_| job.peer != Peer::Ours) else {
            return Ok(vec![Self::of_all(job).await?; job.tasks as usize]);
        };
        let mut locks = Vec::new();
        for _ in 0..job.tasks {
            locks.push(Self::Sql(Arc::new(Sql::connect(job.peer, url).await?)));
        }
        Ok(locks)
    }

    async fn of_all(job: &Job) -> Result<Self> {
        match job.peer {
            Peer::Ours => Ok(Self::Ours(Ours::connect(job).await?)),
            Peer::Raw => Ok(Self::Raw(Raw::connect(job.one_node()?).await?)),
            Peer::Rslock => Ok(Self::Rslock(redis::rslock(job).await?)),
            Peer::NoLock => Ok(Self::NoLock),
            other => Err(format!("{other} has a program of its own, or no server").into()),
        }
    }

    /// Waits as the library waits; raw scripts do not.
    pub(super) async fn acquire(&self, name: &str, ttl_ms: u64) -> Result<Held> {
        match self {
            Self::Ours(locks) => Ok(Held::Ours(locks.acquire(name, ttl_ms, Wait::Forever).await?)),
            Self::Raw(raw) => {
                Ok(Held::Raw { name: name.to_owned(), owner: raw.take(name, ttl_ms).await? })
            }
            Self::Rslock(locks) => {
                Ok(Held::Rslock(locks.acquire(name, Duration::from_millis(ttl_ms)).await?))
            }
            Self::Sql(sql) => {
                Ok(Held::Sql { name: name.to_owned(), owner: sql.take(name, ttl_ms).await? })
            }
            Self::NoLock => Ok(Held::NoLock),
        }
    }

    /// Does not wait. None: somebody else has it.
    pub(super) async fn try_acquire(&self, name: &str, ttl_ms: u64) -> Result<Option<Held>> {
        match self {
            Self::Ours(locks) => match locks.acquire(name, ttl_ms, Wait::No).await {
                Err(error) if error.kind() == ErrorKind::Contended => Ok(None),
                tried => Ok(Some(Held::Ours(tried?))),
            },
            Self::Rslock(locks) => match locks.lock(name, Duration::from_millis(ttl_ms)).await {
                Err(LockError::Unavailable) => Ok(None),
                tried => Ok(Some(Held::Rslock(LockGuard { lock: tried? }))),
            },
            _ => Err("only lock libraries are tried".into()),
        }
    }

    pub(super) async fn release(&self, held: Held) -> Result<()> {
        match (self, held) {
            (_, Held::Ours(guard)) => guard.release().await?,
            (Self::Raw(raw), Held::Raw { name, owner }) => raw.give(&name, owner).await?,
            (Self::Sql(sql), Held::Sql { name, owner }) => sql.give(&name, owner).await?,
            (_, Held::Rslock(guard)) => guard.release().await,
            _ => {}
        }
        Ok(())
    }
}
