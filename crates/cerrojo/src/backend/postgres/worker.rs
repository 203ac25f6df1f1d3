//! Those who ask the server: two tasks with a connection each, however many locks there are.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::sync::watch;
use tokio_postgres::{Row, types::Type};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{
    answer::Answer,
    batch::{Ask, Batch, Terms},
    config::Config,
    dial::{Parameter, Wire},
    error::PgError,
    greeting::About,
    queue::{Job, Load, Promise, Query, Queue, Value},
    sweep::Sweep,
};
use crate::{
    StoreId,
    clock::{self, Instant},
};

/// While one has a batch under way, the other collects the next.
const WORKERS: usize = 2;
/// How long a request that is alone waits for its row: a few commits of others.
const PATIENCE: Duration = Duration::from_millis(50);
/// How long nobody dials after it has failed, at first and at most.
const REST: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

/// The way to the server. It is given up when this is dropped.
#[derive(Debug)]
pub(super) struct Workers {
    shared: Arc<Shared>,
    _ends: DropGuard,
}

#[derive(Debug)]
struct Shared {
    config: Config,
    queue: Arc<Queue>,
    store: OnceLock<StoreId>,
    /// Which of the tasks there are: those of a runtime that has ended are gone.
    tasks: [AtomicBool; WORKERS],
    connected: AtomicUsize,
    /// Sent when one connection has learned that the store may be another one: all of them are greeted anew.
    doubt: watch::Sender<()>,
    ended: CancellationToken,
}

impl Shared {
    async fn dial(&self) -> Result<(Wire, About), PgError> {
        let (wire, about) = Wire::dial_store(&self.config).await?;
        match self.store.get_or_init(|| about.store) {
            store if *store == about.store => Ok((wire, about)),
            _ => Err(PgError::AnotherStore),
        }
    }

    /// Whether the connection that brought this answer is of further use.
    fn is_fine<T>(&self, answer: &Result<T, PgError>) -> bool {
        let Err(error) = answer else { return true };
        if error.doubts_store() {
            self.doubt.send_replace(());
        }
        error.leaves_connection()
    }
}

impl Workers {
    /// Does no I/O.
    pub(super) fn new(config: Config) -> Self {
        let ended = CancellationToken::new();
        let shared = Shared {
            config,
            queue: Arc::default(),
            store: OnceLock::new(),
            tasks: Default::default(),
            connected: AtomicUsize::new(0),
            doubt: watch::Sender::default(),
            ended: ended.clone(),
        };
        Self { shared: Arc::new(shared), _ends: ended.drop_guard() }
    }

    /// Within the limit. A name whose row somebody's transaction holds is waited for a little, alone, and is busy then.
    pub(super) async fn ask(&self, ask: Ask, limit: Duration) -> Result<Answer, PgError> {
        self.start();
        let until = Instant::now() + limit;
        match self.shared.queue.ask(ask.clone(), until).await? {
            Answer::Busy => self.shared.queue.ask_patiently(ask, until).await,
            answer => Ok(answer),
        }
    }

    pub(super) async fn query(
        &self,
        statement: String,
        parameters: Vec<Value>,
    ) -> Result<Vec<Row>, PgError> {
        self.start();
        let until = Instant::now() + self.shared.config.call_limit;
        self.shared.queue.query(Query { statement, parameters }, until).await
    }

    /// Ready when a store of locks has let us in.
    pub(super) async fn connect(&self) -> Result<(), PgError> {
        self.start();
        // Long enough for the reason why not.
        self.shared.queue.hello(Instant::now() + 3 * self.shared.config.dial_limit()).await
    }

    /// Which store this is, once there was a connection.
    pub(super) fn store(&self) -> Option<StoreId> {
        self.shared.store.get().copied()
    }

    fn start(&self) {
        for number in 0..WORKERS {
            if let Some(running) = Running::start(&self.shared, number) {
                tokio::spawn(Worker::new(&self.shared, number).work(running));
            }
        }
    }
}

/// Held by a task for as long as it runs.
struct Running {
    shared: Arc<Shared>,
    number: usize,
}

impl Running {
    /// None when there is one already.
    fn start(shared: &Arc<Shared>, number: usize) -> Option<Self> {
        let is_running = shared.tasks.get(number)?.swap(true, Ordering::AcqRel);
        (!is_running).then(|| Self { shared: Arc::clone(shared), number })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(task) = self.shared.tasks.get(self.number) {
            task.store(false, Ordering::Release);
        }
    }
}

/// A connection that others count on.
struct Connected {
    shared: Arc<Shared>,
    wire: Wire,
    about: About,
}

impl Connected {
    fn new(shared: &Arc<Shared>, (wire, about): (Wire, About)) -> Self {
        shared.connected.fetch_add(1, Ordering::Relaxed);
        Self { shared: Arc::clone(shared), wire, about }
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        self.shared.connected.fetch_sub(1, Ordering::Relaxed);
    }
}

struct Worker {
    shared: Arc<Shared>,
    connected: Option<Connected>,
    doubt: watch::Receiver<()>,
    rest: Duration,
    /// The first of them prunes, now and then.
    sweep: Option<Sweep>,
}

impl Worker {
    fn new(shared: &Arc<Shared>, number: usize) -> Self {
        let sweep = (number == 0).then(Sweep::default);
        let doubt = shared.doubt.subscribe();
        Self { shared: Arc::clone(shared), connected: None, doubt, rest: REST.0, sweep }
    }

    async fn work(mut self, running: Running) {
        let ended = self.shared.ended.clone();
        loop {
            tokio::select! {
                biased;
                () = ended.cancelled() => break,
                () = self.step() => {}
            }
        }
        drop(running);
    }

    async fn step(&mut self) {
        match &mut self.connected {
            None => {
                self.shared.queue.has_work().await;
                self.connect().await;
            }
            Some(connected) => {
                let load = tokio::select! {
                    biased;
                    _ = self.doubt.changed() => None,
                    load = self.shared.queue.take() => Some(load),
                    _ = connected.wire.hear() => None,
                };
                match load {
                    Some(load) => self.serve(load).await,
                    None => self.connected = None,
                }
            }
        }
    }

    async fn connect(&mut self) {
        self.doubt.mark_unchanged();
        match self.shared.dial().await {
            Ok(wire) => {
                self.connected = Some(Connected::new(&self.shared, wire));
                self.rest = REST.0;
            }
            Err(error) => {
                tracing::debug!(%error, "no connection");
                self.fail_all(error);
                // Whoever asks meanwhile is told the same, if nobody else can ask for it.
                clock::sleep(self.rest).await;
                self.rest = (self.rest * 2).min(REST.1);
            }
        }
    }

    /// Unless another has a connection: then that one is enough.
    fn fail_all(&self, error: PgError) {
        let error = Arc::new(error);
        while self.shared.connected.load(Ordering::Relaxed) == 0
            && let Some(mut load) = self.shared.queue.take_now()
        {
            for job in std::mem::take(&mut load.jobs) {
                job.fail(PgError::Shared(Arc::clone(&error)));
            }
        }
    }

    async fn serve(&mut self, mut load: Load) {
        let Some(connected) = &mut self.connected else { return };
        let (mut asks, mut patience) = (Vec::new(), Duration::ZERO);
        let mut is_fine = true;
        for job in std::mem::take(&mut load.jobs) {
            match job {
                Job::Ask(ask, promise) => asks.push((ask, promise)),
                Job::Patient(ask, promise) => {
                    asks.push((ask, promise));
                    patience = PATIENCE;
                }
                Job::Hello(promise) => promise.keep(Ok(())),
                Job::Query(query, promise) => {
                    is_fine = query_for(connected, &query, promise).await;
                }
            }
        }
        if !asks.is_empty() {
            is_fine = ask_for(connected, asks, patience).await;
        }
        drop(load);
        if let (true, Some(sweep)) = (is_fine, &mut self.sweep) {
            is_fine = sweep.go_on(&mut connected.wire, &self.shared.config).await;
        }
        if !is_fine {
            self.connected = None;
        }
    }
}

/// Answers whether the connection is of further use.
async fn query_for(connected: &mut Connected, query: &Query, promise: Promise<Vec<Row>>) -> bool {
    promise.note_sent();
    let parameters: Vec<Parameter<'_>> = query
        .parameters
        .iter()
        .map(|value| -> Parameter<'_> {
            match value {
                Value::Text(text) => (text, Type::TEXT),
                Value::Number(number) => (number, Type::INT8),
                Value::Bool(yes) => (yes, Type::BOOL),
            }
        })
        .collect();
    let rows = connected.wire.query(promise.until, &query.statement, &parameters).await;
    let is_fine = connected.shared.is_fine(&rows);
    promise.keep(rows);
    is_fine
}

async fn ask_for(
    connected: &mut Connected,
    asks: Vec<(Ask, Promise<Answer>)>,
    patience: Duration,
) -> bool {
    let (asks, promises): (Vec<_>, Vec<_>) = asks.into_iter().unzip();
    promises.iter().for_each(Promise::note_sent);
    // Nobody's request is late because of a neighbour's: the connection is given up at the first limit.
    let until = promises.iter().map(|promise| promise.until).min();
    let until = until.unwrap_or_else(Instant::now);
    let About { table, clock, .. } = connected.about;
    let batch = Batch::of(&asks, &Terms { table, until_us: clock.at(until), patience });
    let statement = batch.statement(&connected.shared.config.names);
    let rows = connected.wire.query(until, &statement, &batch.parameters()).await;
    if let Ok(rows) = &rows {
        connected.about.clock = Batch::clock(rows, Instant::now()).unwrap_or(clock);
    }
    let answers = match rows {
        Err(error) if error.is_impatience() => Ok(vec![Answer::Busy; asks.len()]),
        rows => rows.and_then(|rows| batch.answers(&rows)),
    };
    let is_fine = connected.shared.is_fine(&answers);
    answer_all(promises, answers);
    is_fine
}

fn answer_all(promises: Vec<Promise<Answer>>, answers: Result<Vec<Answer>, PgError>) {
    match answers {
        Ok(answers) => {
            for (promise, answer) in promises.into_iter().zip(answers) {
                promise.keep(Ok(answer));
            }
        }
        Err(error) => {
            let error = Arc::new(error);
            for promise in promises {
                promise.keep(Err(PgError::Shared(Arc::clone(&error))));
            }
        }
    }
}
