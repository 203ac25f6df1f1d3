//! The one connection that all locks of a store share: made anew when it is gone, and never asked without a time limit.

use std::{
    sync::{
        Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use redis::{Cmd, ServerErrorKind, Value};
use tokio::sync::watch;

use super::{
    config::Address,
    dial::{Connection, Dial, Ear},
    error::RedisError,
    info::Info,
    script::Script,
};
use crate::clock::{self, Instant};

/// A server that has not answered so many calls in a row is given another connection: the old one may be half open.
const TIMEOUTS_MAX: u32 = 2;
/// How long nobody dials after it has failed, at first and at most.
const REST: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

/// What is done with a new connection before it is used.
#[derive(Clone, Default)]
pub(in crate::backend) struct Greeting {
    /// What hears what the server pushes, and on which channel.
    pub(in crate::backend) hears: Option<(Ear, String)>,
    /// Looks at what the server tells of itself, and may refuse it.
    pub(in crate::backend) inspects: Option<Inspects>,
    /// Whether that is to say if the server syncs.
    pub(in crate::backend) asks_settings: bool,
    /// What the server is to know from the start: a call to one that does not know its script is sent twice, and who ends
    /// meanwhile does not send it again.
    pub(in crate::backend) loads: Option<&'static Script>,
}

pub(in crate::backend) type Inspects = Arc<dyn Fn(&Info) -> Result<(), RedisError> + Send + Sync>;

pub(in crate::backend) struct Link {
    dial: Dial,
    greeting: Greeting,
    limit: Duration,
    state: RwLock<State>,
    /// How many calls in a row had no answer.
    timeouts: AtomicU32,
    /// How often somebody has dialed.
    dialed: watch::Sender<u64>,
}

#[derive(Default)]
struct State {
    connection: Option<Connection>,
    /// Tells the present connection from those before it.
    generation: u64,
    is_dialing: bool,
    failure: Option<Failure>,
}

/// Why there is no connection.
struct Failure {
    error: Arc<RedisError>,
    rest: Duration,
    until: Instant,
}

/// Whoever dials for all: when it has gone with its runtime, others may.
struct Dialing(Arc<Link>);

impl Drop for Dialing {
    fn drop(&mut self) {
        self.0.write().is_dialing = false;
        self.0.dialed.send_modify(|dialed| *dialed += 1);
    }
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").field("limit", &self.limit).finish_non_exhaustive()
    }
}

/// None: the user may not ask.
fn permitted(answer: redis::RedisResult<Value>) -> Result<Option<Value>, RedisError> {
    match answer {
        Err(error) if error.code() == Some("NOPERM") => Ok(None),
        answer => answer.map(Some).map_err(RedisError::Dial),
    }
}

impl Link {
    /// `limit` is for connecting, and for calls that set none of their own.
    pub(in crate::backend) fn new(dial: Dial, greeting: Greeting, limit: Duration) -> Arc<Self> {
        let (state, timeouts) = (RwLock::default(), AtomicU32::default());
        let dialed = watch::Sender::new(0);
        Arc::new(Self { dial, greeting, limit, state, timeouts, dialed })
    }

    pub(in crate::backend) fn is_cluster(&self) -> bool {
        self.dial.is_cluster()
    }

    /// Of a call that sets none of its own.
    pub(super) fn limit(&self) -> Duration {
        self.limit
    }

    /// What the script answers. After an error it may still run, but before whatever is asked later on this connection.
    pub(in crate::backend) async fn run(
        self: &Arc<Self>,
        script: &Script,
        call: &Cmd,
    ) -> Result<Value, RedisError> {
        self.run_within(self.limit, script, call).await
    }

    pub(in crate::backend) async fn run_within(
        self: &Arc<Self>,
        limit: Duration,
        script: &Script,
        call: &Cmd,
    ) -> Result<Value, RedisError> {
        self.bounded(limit, async |connection| match connection.ask(call).await {
            Err(error) if error.kind() == ServerErrorKind::NoScript.into() => {
                connection.ask(&script.with_text(call)).await
            }
            answer => answer,
        })
        .await
    }

    pub(in crate::backend) async fn ask(
        self: &Arc<Self>,
        command: &Cmd,
    ) -> Result<Value, RedisError> {
        self.bounded(self.limit, async |connection| connection.ask(command).await).await
    }

    pub(in crate::backend) async fn ask_within(
        self: &Arc<Self>,
        limit: Duration,
        command: &Cmd,
    ) -> Result<Value, RedisError> {
        self.bounded(limit, async |connection| connection.ask(command).await).await
    }

    /// The same of one node of a cluster.
    pub(in crate::backend) async fn ask_node(
        self: &Arc<Self>,
        node: &Address,
        command: &Cmd,
    ) -> Result<Value, RedisError> {
        self.bounded(self.limit, async |connection| connection.ask_node(node, command).await).await
    }

    async fn bounded(
        self: &Arc<Self>,
        limit: Duration,
        work: impl AsyncFnOnce(&mut Connection) -> redis::RedisResult<Value>,
    ) -> Result<Value, RedisError> {
        let end = Instant::now() + limit;
        let (mut connection, generation) = self.connection_within(limit).await?;
        let answer = match clock::until(end, work(&mut connection)).await {
            Ok(answer) => answer.map_err(RedisError::Call),
            Err(clock::Elapsed) => Err(RedisError::NoAnswer(limit)),
        };
        self.note(generation, &answer);
        answer
    }

    /// Whether the server has left the last call without an answer, or could not be connected.
    pub(in crate::backend) fn is_silent(&self) -> bool {
        self.timeouts.load(Ordering::Relaxed) > 0 || self.read().failure.is_some()
    }

    /// Without a connection there is one for those who come later: nobody waits for it here.
    pub(in crate::backend) fn connected_now(self: &Arc<Self>) -> Result<(), RedisError> {
        if self.present().is_some() {
            return Ok(());
        }
        let failure = self.read().failure.as_ref().map(|failure| Arc::clone(&failure.error));
        self.start_dialing()?;
        Err(failure.map_or(RedisError::Silent, RedisError::Resting))
    }

    pub(in crate::backend) async fn connection_within(
        self: &Arc<Self>,
        limit: Duration,
    ) -> Result<(Connection, u64), RedisError> {
        let connected = clock::within(limit, self.connection()).await;
        connected.unwrap_or(Err(RedisError::DialTooSlow(limit)))
    }

    /// The present connection, or a new one. May be dropped at any time: dialing goes on, for the next who asks.
    pub(in crate::backend) async fn connection(
        self: &Arc<Self>,
    ) -> Result<(Connection, u64), RedisError> {
        if let Some(present) = self.present() {
            return Ok(present);
        }
        let mut dialed = self.dialed.subscribe();
        if let Some(present) = self.present() {
            return Ok(present);
        }
        self.start_dialing()?;
        // The sender is in here, so it is there.
        drop(dialed.changed().await);
        match (self.present(), &self.read().failure) {
            (Some(present), _) => Ok(present),
            (None, Some(failure)) => Err(RedisError::Resting(Arc::clone(&failure.error))),
            (None, None) => Err(RedisError::DialTooSlow(self.limit)),
        }
    }

    fn present(&self) -> Option<(Connection, u64)> {
        let state = self.read();
        let connection = state.connection.clone().filter(|connection| !connection.has_ended())?;
        Some((connection, state.generation))
    }

    /// One dials for all. A server that refuses is not asked at once again by each of a thousand tasks.
    fn start_dialing(self: &Arc<Self>) -> Result<(), RedisError> {
        let mut state = self.write();
        let failure = state.failure.as_ref();
        // Who comes while it is tried again does not wait for it.
        if let Some(failure) = failure.filter(|f| state.is_dialing || Instant::now() < f.until) {
            return Err(RedisError::Resting(Arc::clone(&failure.error)));
        }
        if state.is_dialing {
            return Ok(());
        }
        state.is_dialing = true;
        drop(state);
        let dialing = Dialing(Arc::clone(self));
        tokio::spawn(async move {
            let link = &dialing.0;
            let made = clock::within(link.limit, link.dial_once()).await;
            link.found(made.unwrap_or(Err(RedisError::DialTooSlow(link.limit))));
        });
        Ok(())
    }

    async fn dial_once(&self) -> Result<Connection, RedisError> {
        let Greeting { hears, inspects, .. } = &self.greeting;
        let mut connection = self.dial.dial(hears.as_ref()).await.map_err(RedisError::Dial)?;
        if let Some(inspects) = inspects {
            inspects(&self.info(&mut connection).await?)?;
        }
        if let Some(script) = self.greeting.loads {
            permitted(connection.ask(&script.load()).await)?;
        }
        Ok(connection)
    }

    /// A user who may not ask goes without.
    async fn info(&self, connection: &mut Connection) -> Result<Info, RedisError> {
        if self.is_cluster() {
            return Ok(Info::default());
        }
        let told = permitted(connection.ask(&redis::cmd("INFO")).await)?;
        let info = told.map(|told| Info::of(&told)).unwrap_or_default();
        if !self.greeting.asks_settings {
            return Ok(info);
        }
        let mut command = redis::cmd("CONFIG");
        command.arg("GET").arg("append*");
        let settings = permitted(connection.ask(&command).await)?;
        Ok(info.with_settings(settings.unwrap_or(Value::Nil)))
    }

    fn found(&self, made: Result<Connection, RedisError>) {
        let mut state = self.write();
        match made {
            Ok(connection) => {
                let generation = state.generation + 1;
                self.timeouts.store(0, Ordering::Relaxed);
                *state = State { generation, connection: Some(connection), ..State::default() };
            }
            Err(error) => {
                let before = state.failure.take().map(|before| (before.rest * 2).min(REST.1));
                let rest = before.unwrap_or(REST.0);
                let until = Instant::now() + rest;
                state.failure = Some(Failure { error: Arc::new(error), rest, until });
            }
        }
    }

    /// Gives the connection up when it is of no further use. In a cluster the driver mends those to single nodes.
    fn note(&self, generation: u64, answer: &Result<Value, RedisError>) {
        let is_useless = match answer {
            Err(RedisError::NoAnswer(_)) => {
                self.timeouts.fetch_add(1, Ordering::Relaxed) + 1 >= TIMEOUTS_MAX
            }
            Err(error) => error.ends_connection(),
            Ok(_) => {
                // Read first: those who all write would wait for each other.
                if self.timeouts.load(Ordering::Relaxed) > 0 {
                    self.timeouts.store(0, Ordering::Relaxed);
                }
                false
            }
        };
        if is_useless && !self.is_cluster() {
            self.give_up(generation);
        }
    }

    fn give_up(&self, generation: u64) {
        let mut state = self.write();
        if state.generation == generation {
            state.connection = None;
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}
