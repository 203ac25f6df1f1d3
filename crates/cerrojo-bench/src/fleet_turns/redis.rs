//! What the libraries for Redis need beside their locks.

use redis::{Script, aio::MultiplexedConnection};
use rslock::LockManager;

use super::{Job, now};
use crate::Result;

/// Two scripts on one connection.
#[derive(Clone)]
pub(super) struct Raw {
    connection: MultiplexedConnection,
    take: Script,
    give: Script,
}

pub(super) async fn connect(port: u16) -> Result<MultiplexedConnection> {
    let client = redis::Client::open(url(port))?;
    Ok(client.get_multiplexed_async_connection().await?)
}

pub(super) fn url(port: u16) -> String {
    format!("redis://127.0.0.1:{port}")
}

pub(super) async fn rslock(job: &Job) -> Result<LockManager> {
    let mut locks = LockManager::new(job.nodes.iter().map(|port| url(*port)).collect());
    if job.tries {
        locks.set_retry(1, std::time::Duration::from_millis(1));
    }
    // It connects when it is first used, which is not to be the first turn.
    locks.query_redis_for_key_value(b"none").await?;
    Ok(locks)
}

impl Raw {
    pub(super) async fn connect(port: u16) -> Result<Self> {
        Ok(Self {
            connection: connect(port).await?,
            take: Script::new("return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])"),
            give: Script::new(
                "return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1])",
            ),
        })
    }

    /// The owner.
    pub(super) async fn take(&self, name: &str, ttl_ms: u64) -> Result<u64> {
        let (mut connection, owner) = (self.connection.clone(), now());
        let mut call = self.take.key(name);
        let taken: Option<String> =
            call.arg(owner).arg(ttl_ms).invoke_async(&mut connection).await?;
        taken.ok_or("raw scripts do not wait")?;
        Ok(owner)
    }

    pub(super) async fn give(&self, name: &str, owner: u64) -> Result<()> {
        let mut connection = self.connection.clone();
        let given: bool = self.give.key(name).arg(owner).invoke_async(&mut connection).await?;
        if given { Ok(()) } else { Err("not held any more".into()) }
    }
}
