//! The one connection that all locks of a store share: made anew when it is gone, and never asked without a time limit.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use redis::{Cmd, ServerErrorKind, Value};

use super::{
    config::Address,
    dial::{Connection, Dial, Ear},
    error::RedisError,
    script::{Call, Script},
};
use crate::clock::{self, Instant};

/// A server that has not answered so many calls in a row is given another connection: the old one may be half open.
const TIMEOUTS_MAX: u32 = 2;
/// How long nobody dials after it has failed, at first and at most.
const REST: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

/// Makes connections of one kind.
pub(super) enum Caller {
    /// Hears this channel.
    Hears(Ear, String),
    Deaf,
}

pub(super) struct Link {
    dial: Arc<Dial>,
    caller: Caller,
    limit: Duration,
    state: Mutex<State>,
    /// Held by whoever is connecting.
    dialing: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct State {
    connection: Option<Connection>,
    /// Tells the present connection from those before it.
    generation: u64,
    timeouts: u32,
    failure: Option<Failure>,
}

/// Why there is no connection.
#[derive(Clone)]
struct Failure {
    error: Arc<RedisError>,
    rest: Duration,
    until: Instant,
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").field("limit", &self.limit).finish_non_exhaustive()
    }
}

impl Link {
    pub(super) fn new(dial: Arc<Dial>, caller: Caller, limit: Duration) -> Self {
        Self {
            dial,
            caller,
            limit,
            state: Mutex::default(),
            dialing: tokio::sync::Mutex::default(),
        }
    }

    /// What the script answers. After an error it may still run, but before whatever is asked later on this connection.
    pub(super) async fn run(&self, script: &Script, call: &Call) -> Result<Value, RedisError> {
        match self.ask(&script.by_hash(call)).await {
            Err(RedisError::Call(error)) if error.kind() == ServerErrorKind::NoScript.into() => {
                self.ask(&script.by_text(call)).await
            }
            answer => answer,
        }
    }

    pub(super) async fn ask(&self, command: &Cmd) -> Result<Value, RedisError> {
        let (mut connection, generation) = self.connection().await?;
        let answer = match clock::within(self.limit, connection.ask(command)).await {
            Ok(answer) => answer.map_err(RedisError::Call),
            Err(clock::Elapsed) => Err(RedisError::NoAnswer(self.limit)),
        };
        self.note(generation, &answer);
        answer
    }

    /// The same of one node of a cluster.
    pub(super) async fn ask_node(
        &self,
        node: &Address,
        command: &Cmd,
    ) -> Result<Value, RedisError> {
        let (mut connection, _) = self.connection().await?;
        let answer = clock::within(self.limit, connection.ask_node(node, command)).await;
        answer.map_err(|_| RedisError::NoAnswer(self.limit))?.map_err(RedisError::Call)
    }

    pub(super) fn is_cluster(&self) -> bool {
        self.dial.is_cluster()
    }

    /// The present connection, or a new one.
    pub(super) async fn connection(&self) -> Result<(Connection, u64), RedisError> {
        if let Some(present) = self.present() {
            return Ok(present);
        }
        // Boxed: it is rare.
        Box::pin(self.reconnect()).await
    }

    async fn reconnect(&self) -> Result<(Connection, u64), RedisError> {
        let dialed = clock::within(self.limit, async {
            let _dialing = self.dialing.lock().await;
            if let Some(present) = self.present() {
                return Ok(present);
            }
            self.rested()?;
            let made = clock::within(self.limit, self.dial_once()).await;
            self.found(made.unwrap_or(Err(RedisError::DialTooSlow(self.limit))))
        });
        dialed.await.unwrap_or(Err(RedisError::DialTooSlow(self.limit)))
    }

    async fn dial_once(&self) -> Result<Connection, RedisError> {
        match &self.caller {
            Caller::Hears(ear, channel) => self.dial.dial(ear, channel).await,
            Caller::Deaf => self.dial.dial_deaf().await,
        }
    }

    fn present(&self) -> Option<(Connection, u64)> {
        let state = self.state();
        let connection = state.connection.clone().filter(|connection| !connection.has_ended())?;
        Some((connection, state.generation))
    }

    /// A server that refuses is not asked at once again by each of a thousand tasks.
    fn rested(&self) -> Result<(), RedisError> {
        match &self.state().failure {
            Some(failure) if Instant::now() < failure.until => {
                Err(RedisError::Resting(Arc::clone(&failure.error)))
            }
            _ => Ok(()),
        }
    }

    fn found(&self, made: Result<Connection, RedisError>) -> Result<(Connection, u64), RedisError> {
        let mut state = self.state();
        match made {
            Ok(connection) => {
                let generation = state.generation + 1;
                *state =
                    State { generation, connection: Some(connection.clone()), ..State::default() };
                Ok((connection, generation))
            }
            Err(error) => {
                let error = Arc::new(error);
                let rest = match &state.failure {
                    Some(before) => (before.rest * 2).min(REST.1),
                    None => REST.0,
                };
                let until = Instant::now() + rest;
                state.failure = Some(Failure { error: Arc::clone(&error), rest, until });
                Err(RedisError::Resting(error))
            }
        }
    }

    /// Gives the connection up when it is of no further use.
    fn note(&self, generation: u64, answer: &Result<Value, RedisError>) {
        let mut state = self.state();
        if state.generation != generation {
            return;
        }
        let is_useless = match answer {
            Err(RedisError::NoAnswer(_)) => {
                state.timeouts += 1;
                state.timeouts >= TIMEOUTS_MAX
            }
            Err(error) => error.ends_connection(),
            Ok(_) => {
                state.timeouts = 0;
                false
            }
        };
        if is_useless {
            state.connection = None;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
