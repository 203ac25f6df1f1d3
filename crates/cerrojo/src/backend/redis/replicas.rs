//! Grants that count only once replicas have them.
//!
//! WAIT speaks of what was written before on the same connection, and keeps that connection busy: on the one that all
//! share it would stall everybody. So there are a few for this alone.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use redis::{Cmd, Value};
use tokio::sync::Mutex;

use super::{
    dial::Dial,
    error::RedisError,
    link::{Greeting, Link},
    script::Script,
};
use crate::clock;

/// How many such connections there are.
const CONNECTIONS: usize = 4;

#[derive(Debug)]
pub(super) struct Replicas {
    wanted: usize,
    limit: Duration,
    links: [Mutex<Arc<Link>>; CONNECTIONS],
    next: AtomicUsize,
}

impl Replicas {
    pub(super) fn new(dial: &Dial, wanted: usize, limit: Duration) -> Self {
        let link = |_| Mutex::new(Link::new(dial.clone(), Greeting::default(), limit));
        Self { wanted, limit, links: std::array::from_fn(link), next: AtomicUsize::default() }
    }

    /// What the script answers; if `is_grant` says so of it, not before enough replicas have it too.
    ///
    /// After an error the lock may be the owner's: it is to be given back.
    pub(super) async fn run(
        &self,
        script: &Script,
        call: &Cmd,
        is_grant: impl Fn(&Value) -> bool,
    ) -> Result<Value, RedisError> {
        let turn = self.next.fetch_add(1, Ordering::Relaxed) % CONNECTIONS;
        let link = self.links.iter().cycle().nth(turn).ok_or(RedisError::Busy(self.limit))?;
        let turn = clock::within(self.limit, link.lock()).await;
        let link = turn.map_err(|_| RedisError::Busy(self.limit))?;
        let answer = link.run(script, call).await?;
        if is_grant(&answer) {
            self.wait(&link).await?;
        }
        Ok(answer)
    }

    /// The server gives up a little before we do.
    async fn wait(&self, link: &Arc<Link>) -> Result<(), RedisError> {
        let patience = u64::try_from((self.limit / 2).as_millis()).unwrap_or(u64::MAX);
        let mut wait = redis::cmd("WAIT");
        wait.arg(self.wanted).arg(patience);
        match link.ask(&wait).await? {
            Value::Int(held) if usize::try_from(held).is_ok_and(|held| held >= self.wanted) => {
                Ok(())
            }
            Value::Int(held) => Err(RedisError::Replicas { held, wanted: self.wanted }),
            other => Err(RedisError::Answer(format!("{other:?}"))),
        }
    }
}
