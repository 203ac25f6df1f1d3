//! One node: a server of the `redis` backend, asked for its vote alone.

use std::{sync::Arc, time::Duration};

use redis::{Cmd, Value};

use super::{
    super::redis::{
        answer::{self, Answer, Refusal},
        error::RedisError,
        format::Seen,
        link::Link,
        scan,
        script::{self as single, Script},
    },
    quarantine::Register,
    script,
};
use crate::clock::Instant;

/// How long a node is given that has left the last call without an answer. Whoever lacks its vote alone keeps the lock from
/// all others meanwhile, so that a node that stands still may cost its whole time limit only once.
const SILENT_LIMIT: Duration = Duration::from_millis(50);

/// A connection to one node, and its number among them.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) place: Arc<str>,
    pub(super) link: Arc<Link>,
    pub(super) number: usize,
    register: Arc<Register>,
}

/// What a vote is asked for.
#[derive(Debug)]
pub(super) struct Ask {
    pub(super) key: String,
    pub(super) owner: Vec<u8>,
    /// What is shown of the holder; empty in a foreign format.
    pub(super) details: Vec<u8>,
    pub(super) ttl_ms: u64,
    pub(super) script: Cmd,
}

/// How a node votes on an acquisition.
#[derive(Debug)]
pub(super) enum Vote {
    Acquired,
    Conflicted(Seen),
    Failed(Reason),
}

/// Why a node did not vote.
#[derive(Debug)]
pub(super) enum Reason {
    Error(RedisError),
    QuarantinedUntil(Instant),
}

impl Node {
    pub(super) fn new(
        place: String,
        link: Arc<Link>,
        number: usize,
        register: &Arc<Register>,
    ) -> Self {
        Self { place: place.into(), link, number, register: Arc::clone(register) }
    }

    /// A node in quarantine is not asked.
    ///
    /// A lock that is free is whose command comes first; only who is refused asks by the script, which says who has it, and
    /// takes a place in the line.
    pub(super) async fn acquire(&self, limit: Duration, ask: &Ask) -> Vote {
        // What may have to be connected again may have been restarted: that comes first.
        let limit = match self.connected_within(limit).await {
            Ok(limit) => limit,
            Err(error) => return Vote::Failed(Reason::Error(error)),
        };
        if let Some(until) = self.register.quarantined_until(self.number) {
            return Vote::Failed(Reason::QuarantinedUntil(until));
        }
        match self.link.ask_within(limit, &self.take(ask)).await {
            Ok(Value::Nil) => {}
            Ok(_) => return Vote::Acquired,
            Err(error) => return Vote::Failed(Reason::Error(error)),
        }
        let answer = self.link.run_within(limit, &script::ACQUIRE, &ask.script).await;
        match answer.and_then(answer::of_acquire) {
            Ok(Answer::Granted) => Vote::Acquired,
            Ok(Answer::Refused(Refusal { seen: Some(seen), .. })) => Vote::Conflicted(seen),
            Ok(Answer::Refused(_)) => {
                Vote::Failed(Reason::Error(RedisError::Answer("refused by nobody".to_owned())))
            }
            Err(error) => Vote::Failed(Reason::Error(error)),
        }
    }

    /// Takes the lock if it is free.
    fn take(&self, ask: &Ask) -> Cmd {
        let mut value = ask.owner.clone();
        if !ask.details.is_empty() {
            let since = self.register.time_of(self.number).as_millis();
            value.extend(format!(" {since} ").bytes());
            value.extend(&ask.details);
        }
        let mut command = Cmd::with_capacity(6, value.len() + ask.key.len() + 32);
        command.arg("SET").arg(&ask.key).arg(value).arg("NX").arg("PX").arg(ask.ttl_ms);
        command
    }

    /// How long it is given to vote, now that it is connected.
    async fn connected_within(&self, limit: Duration) -> Result<Duration, RedisError> {
        if self.link.is_silent() {
            self.link.connected_now()?;
            return Ok(limit.min(SILENT_LIMIT));
        }
        self.link.connection_within(limit).await?;
        Ok(limit)
    }

    /// Gives the lock back to one whose lease goes on; in quarantine too. True: the owner has it here.
    pub(super) async fn put_back(&self, limit: Duration, ask: &Ask) -> Result<bool, RedisError> {
        Ok(self.link.ask_within(limit, &self.take(ask)).await? != Value::Nil)
    }

    pub(super) async fn renew(&self, limit: Duration, call: &Cmd) -> Result<bool, RedisError> {
        self.yes(limit, &single::RENEW, call).await
    }

    pub(super) async fn release(&self, limit: Duration, call: &Cmd) -> Result<bool, RedisError> {
        self.yes(limit, &script::RELEASE, call).await
    }

    pub(super) async fn look(
        &self,
        limit: Duration,
        script: &Script,
        call: &Cmd,
    ) -> Result<Option<Seen>, RedisError> {
        answer::of_look(self.link.run_within(limit, script, call).await?)
    }

    pub(super) async fn names(&self, pattern: &str) -> Result<Vec<String>, RedisError> {
        scan::keys(&self.link, pattern).await
    }

    /// The node's wall clock, and between which instants of ours it was read.
    pub(super) async fn time(&self) -> Result<(Duration, Instant, Instant), RedisError> {
        let before = Instant::now();
        let answer = self.link.ask(&redis::cmd("TIME")).await?;
        let after = Instant::now();
        let time: Result<(u64, u64), _> = redis::FromRedisValue::from_redis_value(answer);
        let (seconds, micros) = time.map_err(|error| RedisError::Answer(error.to_string()))?;
        Ok((Duration::from_secs(seconds) + Duration::from_micros(micros), before, after))
    }

    async fn yes(&self, limit: Duration, script: &Script, call: &Cmd) -> Result<bool, RedisError> {
        let answer: Value = self.link.run_within(limit, script, call).await?;
        answer::yes(&answer)
    }
}
