//! What is to be asked of the server, and by whom: requests wait here until a connection takes them, as many at a time as there are.

use std::{
    collections::{HashSet, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::sync::{Notify, oneshot};
use tokio_postgres::Row;

use super::{answer::Answer, batch::Ask, error::PgError};
use crate::{
    LockName,
    clock::{self, Instant},
};

/// How many requests travel together at most.
const ROWS_MAX: usize = 64;

/// Where an answer goes.
#[derive(Debug)]
pub(super) struct Promise<T> {
    answer: oneshot::Sender<Result<T, PgError>>,
    /// Past it nobody listens.
    pub(super) until: Instant,
    is_sent: Arc<AtomicBool>,
}

impl<T> Promise<T> {
    pub(super) fn keep(self, answer: Result<T, PgError>) {
        // Whoever asked may have gone.
        drop(self.answer.send(answer));
    }

    fn is_wanted(&self) -> bool {
        !self.answer.is_closed()
    }

    pub(super) fn note_sent(&self) {
        self.is_sent.store(true, Ordering::Relaxed);
    }
}

/// A statement that travels alone.
#[derive(Debug)]
pub(super) struct Query {
    pub(super) statement: String,
    pub(super) parameters: Vec<Value>,
}

/// A parameter of it.
#[derive(Clone, Debug)]
pub(super) enum Value {
    Text(String),
    Number(i64),
    Bool(bool),
}

#[derive(Debug)]
pub(super) enum Job {
    Ask(Ask, Promise<Answer>),
    Query(Query, Promise<Vec<Row>>),
}

impl Job {
    fn is_wanted(&self) -> bool {
        match self {
            Self::Ask(_, promise) => promise.is_wanted(),
            Self::Query(_, promise) => promise.is_wanted(),
        }
    }

    pub(super) fn fail(self, error: PgError) {
        match self {
            Self::Ask(_, promise) => promise.keep(Err(error)),
            Self::Query(_, promise) => promise.keep(Err(error)),
        }
    }
}

/// What a connection takes at a time: one query, or requests for different names, which nobody else asks about meanwhile.
#[derive(Debug)]
pub(super) struct Load {
    queue: Arc<Queue>,
    pub(super) jobs: Vec<Job>,
    names: Vec<LockName>,
}

impl Drop for Load {
    fn drop(&mut self) {
        if !self.names.is_empty() {
            self.queue.state().under_way.retain(|name| !self.names.contains(name));
            self.queue.arrived.notify_last();
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    /// Tells the connection that was busy last: it is the warmer one.
    arrived: Notify,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Job>,
    /// Names about which a request is under way: those of one lease keep their order.
    under_way: HashSet<LockName>,
}

impl Queue {
    pub(super) async fn ask(&self, ask: Ask, until: Instant) -> Result<Answer, PgError> {
        self.submit(|promise| Job::Ask(ask, promise), until).await
    }

    pub(super) async fn query(&self, query: Query, until: Instant) -> Result<Vec<Row>, PgError> {
        self.submit(|promise| Job::Query(query, promise), until).await
    }

    /// Dropped before it is sent, it is never sent.
    async fn submit<T>(
        &self,
        job: impl FnOnce(Promise<T>) -> Job,
        until: Instant,
    ) -> Result<T, PgError> {
        let limit = until.remaining();
        let is_sent = Arc::new(AtomicBool::new(false));
        let (answer, answered) = oneshot::channel();
        let promise = Promise { answer, until, is_sent: Arc::clone(&is_sent) };
        self.state().waiting.push_back(job(promise));
        self.arrived.notify_last();
        match clock::until(until, answered).await {
            Ok(answer) => answer.unwrap_or(Err(PgError::Abandoned)),
            Err(clock::Elapsed) if is_sent.load(Ordering::Relaxed) => Err(PgError::NoAnswer(limit)),
            Err(clock::Elapsed) => Err(PgError::NotSent(limit)),
        }
    }

    /// What can be asked now. May be dropped at any time.
    pub(super) async fn take(self: &Arc<Self>) -> Load {
        loop {
            if let Some(load) = self.take_now() {
                return load;
            }
            self.arrived.notified().await;
        }
    }

    /// Ready when there is something to ask, which is left to those who can. May be dropped at any time.
    pub(super) async fn has_work(&self) {
        while self.state().waiting.is_empty() {
            self.arrived.notified().await;
        }
        self.arrived.notify_last();
    }

    pub(super) fn take_now(self: &Arc<Self>) -> Option<Load> {
        let mut state = self.state();
        let mut load = Load { queue: Arc::clone(self), jobs: Vec::new(), names: Vec::new() };
        let mut left = VecDeque::new();
        while let Some(job) = state.waiting.pop_front() {
            match job {
                job if !job.is_wanted() => {}
                Job::Query(..) if load.jobs.is_empty() => {
                    load.jobs.push(job);
                    break;
                }
                Job::Ask(ref ask, _) if state.under_way.insert(ask.name.clone()) => {
                    load.names.push(ask.name.clone());
                    load.jobs.push(job);
                    if load.jobs.len() == ROWS_MAX {
                        break;
                    }
                }
                job => left.push_back(job),
            }
        }
        left.append(&mut state.waiting);
        state.waiting = left;
        let more = !state.waiting.is_empty();
        drop(state);
        if load.jobs.is_empty() {
            return None;
        }
        if more {
            self.arrived.notify_last();
        }
        Some(load)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
