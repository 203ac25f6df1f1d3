//! What is to be asked of the server, and by whom: requests wait here until a connection takes them, as many at a time as there are.

use std::{
    collections::{HashSet, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
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

    /// What is sent with no time left for an answer costs the connection.
    fn is_wanted(&self) -> bool {
        !self.answer.is_closed() && Instant::now() < self.until
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
    /// The same, alone, and waiting for its row.
    Patient(Ask, Promise<Answer>),
    Query(Query, Promise<Vec<Row>>),
    /// Nothing but whether there is a connection.
    Hello(Promise<()>),
}

impl Job {
    fn name(&self) -> Option<&LockName> {
        match self {
            Self::Ask(ask, _) | Self::Patient(ask, _) => Some(&ask.name),
            Self::Query(..) | Self::Hello(_) => None,
        }
    }

    fn is_wanted(&self) -> bool {
        match self {
            Self::Ask(_, promise) | Self::Patient(_, promise) => promise.is_wanted(),
            Self::Query(_, promise) => promise.is_wanted(),
            Self::Hello(promise) => promise.is_wanted(),
        }
    }

    pub(super) fn fail(self, error: PgError) {
        match self {
            Self::Ask(_, promise) | Self::Patient(_, promise) => promise.keep(Err(error)),
            Self::Query(_, promise) => promise.keep(Err(error)),
            Self::Hello(promise) => promise.keep(Err(error)),
        }
    }
}

/// What a connection takes at a time: one query, or requests for different names, which nobody else asks about meanwhile.
#[derive(Debug)]
pub(super) struct Load {
    queue: Arc<Queue>,
    pub(super) jobs: Vec<Job>,
    names: Vec<LockName>,
    is_patient: bool,
}

impl Load {
    fn new(queue: &Arc<Queue>, jobs: Vec<Job>) -> Self {
        let names = jobs.iter().filter_map(|job| job.name().cloned()).collect();
        let is_patient = jobs.iter().any(|job| matches!(job, Job::Patient(..)));
        Self { queue: Arc::clone(queue), jobs, names, is_patient }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        if !self.names.is_empty() {
            let mut state = self.queue.state();
            for name in &self.names {
                state.under_way.remove(name);
            }
            state.has_patient &= !self.is_patient;
            let more = !state.waiting.is_empty();
            drop(state);
            if more {
                self.queue.arrived.notify_last();
            }
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
    /// Whether one of the connections waits for a row: the others are for those who do not.
    has_patient: bool,
}

impl State {
    /// One at a time.
    fn take_patient(&mut self) -> Option<Job> {
        if self.has_patient {
            return None;
        }
        let can_go = |job: &Job| match job {
            Job::Patient(ask, _) => !self.under_way.contains(&ask.name),
            _ => false,
        };
        let at = self.waiting.iter().position(can_go)?;
        let job = self.waiting.remove(at)?;
        self.under_way.extend(job.name().cloned());
        self.has_patient = true;
        Some(job)
    }

    fn take_others(&mut self) -> Vec<Job> {
        let (mut taken, mut left) = (Vec::new(), VecDeque::new());
        while let Some(job) = self.waiting.pop_front() {
            match &job {
                Job::Query(..) | Job::Hello(_) if taken.is_empty() => {
                    taken.push(job);
                    break;
                }
                Job::Ask(ask, _) if self.under_way.insert(ask.name.clone()) => taken.push(job),
                _ => left.push_back(job),
            }
            if taken.len() == ROWS_MAX {
                break;
            }
        }
        left.append(&mut self.waiting);
        self.waiting = left;
        taken
    }
}

impl Queue {
    pub(super) async fn ask(&self, ask: Ask, until: Instant) -> Result<Answer, PgError> {
        self.submit(|promise| Job::Ask(ask, promise), until).await
    }

    pub(super) async fn ask_patiently(&self, ask: Ask, until: Instant) -> Result<Answer, PgError> {
        self.submit(|promise| Job::Patient(ask, promise), until).await
    }

    pub(super) async fn query(&self, query: Query, until: Instant) -> Result<Vec<Row>, PgError> {
        self.submit(|promise| Job::Query(query, promise), until).await
    }

    pub(super) async fn hello(&self, until: Instant) -> Result<(), PgError> {
        self.submit(Job::Hello, until).await
    }

    /// Dropped before it is sent, it is never sent.
    async fn submit<T>(
        &self,
        job: impl FnOnce(Promise<T>) -> Job,
        until: Instant,
    ) -> Result<T, PgError> {
        let limit = to_millis(until.remaining());
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
        state.waiting.retain(Job::is_wanted);
        let taken = state.take_patient().map_or_else(|| state.take_others(), |job| vec![job]);
        let more = !state.waiting.is_empty();
        drop(state);
        if taken.is_empty() {
            return None;
        }
        if more {
            self.arrived.notify_last();
        }
        Some(Load::new(self, taken))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// As messages say it.
fn to_millis(length: Duration) -> Duration {
    Duration::from_millis(u64::try_from((length.as_micros() + 500) / 1_000).unwrap_or(u64::MAX))
}
