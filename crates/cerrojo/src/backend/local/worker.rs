//! The one thread of an open store that touches the database.
//!
//! Requests that are due together are one transaction. Writers of all processes take turns by a blocking lock on the
//! file `turn`: fair enough, and without the sleeps of SQLite's busy handler.

use std::{
    fs::File,
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicUsize, Ordering},
        mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    },
};

use rusqlite::{Connection, OpenFlags};
use tokio::sync::oneshot;

use super::{
    error::LocalError,
    folder::Folder,
    machine::Machine,
    spin::Spin,
    store::Tables,
    wake::{Caller, PeerId, Sockets},
};
use crate::{StoreId, clock, spi::CALL_LIMIT};

/// How many requests make one transaction at most.
const BATCH_MAX: usize = 64;
/// How many requests may wait for the thread; one more is refused.
const QUEUE_MAX: usize = 65_536;

type Outcome<T> = Result<T, LocalError>;
/// What befell a whole batch.
type BatchOutcome<T> = Result<T, Arc<LocalError>>;
/// Says how a request ended, once the commit is known.
type Completion = Box<dyn FnOnce(BatchOutcome<()>) + Send>;
/// A request: its step on the tables, or the reason why there will be none. Nothing to complete if it was abandoned.
type Job = Box<dyn FnOnce(BatchOutcome<&mut Tables>) -> Option<Completion> + Send>;

/// Sends requests to the thread, which ends when the last of these is dropped.
#[derive(Clone, Debug)]
pub(super) struct Worker(Arc<Line>);

/// Sends requests as long as the store is open elsewhere.
#[derive(Clone, Debug)]
pub(super) struct WeakWorker(std::sync::Weak<Line>);

/// The line of requests before the thread.
#[derive(Debug)]
struct Line {
    jobs: SyncSender<Job>,
    /// How many callers wait for an answer.
    callers: AtomicUsize,
    spin: Spin,
}

/// A caller that waits for an answer, until dropped.
struct CallerCount<'a>(&'a AtomicUsize);

impl<'a> CallerCount<'a> {
    /// Counts one more; says whether it is the only one.
    fn enter(callers: &'a AtomicUsize) -> (Self, bool) {
        let alone = callers.fetch_add(1, Ordering::Relaxed) == 0;
        (Self(callers), alone)
    }
}

impl Drop for CallerCount<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Whether a request has been started; decided once, by thread and caller.
#[derive(Debug, Default)]
struct Progress(AtomicU8);

const QUEUED: u8 = 0;
const STARTED: u8 = 1;
const ABANDONED: u8 = 2;

impl Progress {
    fn start(&self) -> bool {
        self.0.compare_exchange(QUEUED, STARTED, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// True: it will never start.
    fn abandon(&self) -> bool {
        let left = self.0.compare_exchange(QUEUED, ABANDONED, Ordering::AcqRel, Ordering::Acquire);
        left.is_ok()
    }
}

/// Abandons the request when its caller goes away.
struct Abandon(Arc<Progress>);

impl Drop for Abandon {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

impl Worker {
    /// Opens the database on a thread of its own.
    pub(super) async fn start(
        folder: Folder,
        machine: Machine,
        sockets: Arc<Sockets>,
    ) -> Outcome<(Self, StoreId)> {
        let (jobs, queue) = sync_channel(QUEUE_MAX);
        let (opened, answer) = oneshot::channel();
        let path = folder.path().to_owned();
        let thread = std::thread::Builder::new().name("cerrojo-local".into());
        let spawned = thread.spawn(move || match Desk::open(folder, machine, sockets) {
            Ok(desk) => {
                drop(opened.send(Ok(desk.tables.store_id())));
                desk.serve(&queue);
            }
            Err(error) => drop(opened.send(Err(error))),
        });
        spawned.map_err(|error| LocalError::Io { what: "start a thread for", path, error })?;
        let answer = clock::within(CALL_LIMIT, answer).await;
        let store_id = answer
            .map_err(|_| LocalError::NoAnswer { limit: CALL_LIMIT, started: false })?
            .map_err(|_| LocalError::WorkerEnded)??;
        let line = Line { jobs, callers: AtomicUsize::new(0), spin: Spin::default() };
        Ok((Self(Arc::new(line)), store_id))
    }

    /// One request: done whole or not at all, and answered once it is committed.
    ///
    /// Dropping this future abandons the request if the thread has not started it.
    pub(super) async fn call<T: Send + 'static>(
        &self,
        step: impl FnOnce(&mut Tables) -> Outcome<T> + Send + 'static,
    ) -> Outcome<T> {
        let progress = Arc::new(Progress::default());
        let abandon = Abandon(Arc::clone(&progress));
        let (reply, mut answer) = oneshot::channel();
        let (_count, alone) = CallerCount::enter(&self.0.callers);
        self.enqueue(job(Arc::clone(&progress), step, reply))?;
        if alone && let Some(answer) = self.0.spin.find(|| answer.try_recv().ok()) {
            return answer;
        }
        let answer = clock::within(CALL_LIMIT, answer).await;
        drop(abandon);
        match answer {
            Ok(answer) => answer.unwrap_or(Err(LocalError::WorkerEnded)),
            Err(_) => {
                let started = progress.0.load(Ordering::Acquire) == STARTED;
                Err(LocalError::NoAnswer { limit: CALL_LIMIT, started })
            }
        }
    }

    /// A request that nobody waits for.
    pub(super) fn send<F: FnOnce() + Send + 'static>(
        &self,
        step: impl FnOnce(&mut Tables) -> Outcome<F> + Send + 'static,
    ) {
        if let Err(error) = self.enqueue(job_without_reply(step)) {
            tracing::warn!(%error, "a request of the local store was dropped");
        }
    }

    fn enqueue(&self, job: Job) -> Outcome<()> {
        self.0.jobs.try_send(job).map_err(|refused| match refused {
            TrySendError::Full(_) => LocalError::Overloaded,
            TrySendError::Disconnected(_) => LocalError::WorkerEnded,
        })
    }

    pub(super) fn downgrade(&self) -> WeakWorker {
        WeakWorker(Arc::downgrade(&self.0))
    }
}

impl WeakWorker {
    /// As [`Worker::send`], if the store is still open.
    pub(super) fn send<F: FnOnce() + Send + 'static>(
        &self,
        step: impl FnOnce(&mut Tables) -> Outcome<F> + Send + 'static,
    ) {
        if let Some(jobs) = self.0.upgrade() {
            Worker(jobs).send(step);
        }
    }
}

fn job<T: Send + 'static>(
    progress: Arc<Progress>,
    step: impl FnOnce(&mut Tables) -> Outcome<T> + Send + 'static,
    reply: oneshot::Sender<Outcome<T>>,
) -> Job {
    Box::new(move |tables| {
        if !progress.start() {
            return None;
        }
        let result = run_step(tables, step);
        Some(Box::new(move |committed| {
            drop(reply.send(outcome(result, committed)));
        }))
    })
}

fn job_without_reply<F: FnOnce() + Send + 'static>(
    step: impl FnOnce(&mut Tables) -> Outcome<F> + Send + 'static,
) -> Job {
    Box::new(move |tables| {
        let result = run_step(tables, step);
        Some(Box::new(move |committed| match outcome(result, committed) {
            Ok(then) => then(),
            Err(error) => tracing::warn!(%error, "a request of the local store failed"),
        }))
    })
}

fn run_step<T>(
    tables: BatchOutcome<&mut Tables>,
    step: impl FnOnce(&mut Tables) -> Outcome<T>,
) -> Outcome<T> {
    tables?.step(step)
}

/// A step that failed says why; one that worked is as good as the commit of its batch.
fn outcome<T>(result: Outcome<T>, committed: BatchOutcome<()>) -> Outcome<T> {
    let value = result?;
    committed?;
    Ok(value)
}

/// What the thread works with.
struct Desk {
    folder: Folder,
    turn: Arc<File>,
    tables: Tables,
    caller: Caller,
    /// The file that was opened: another one at its path would be another store.
    database: (u64, u64),
}

/// Our turn to write, until dropped. The kernel takes it back when the process ends in any way.
struct Turn(Arc<File>);

impl Turn {
    fn take(file: &Arc<File>, folder: &Folder) -> Outcome<Self> {
        let failed = |error| LocalError::Io {
            what: "lock the turn of",
            path: folder.path().to_owned(),
            error,
        };
        file.lock().map_err(failed)?;
        Ok(Self(Arc::clone(file)))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Err(error) = self.0.unlock() {
            tracing::warn!(%error, "the turn was not given on");
        }
    }
}

impl Desk {
    fn open(folder: Folder, machine: Machine, sockets: Arc<Sockets>) -> Outcome<Self> {
        let turn = Arc::new(folder.open_turn()?);
        let caller = Caller::new(sockets)?;
        let taken = Turn::take(&turn, &folder)?;
        let made = folder.make_database()?;
        let opened = connection(&folder).and_then(|db| Tables::open(db, machine));
        let tables = match opened {
            Ok(tables) => tables,
            Err(error) => {
                if made {
                    folder.remove_database();
                }
                return Err(error);
            }
        };
        if made {
            folder.sync()?;
        }
        tables.work_off_log(folder.log_bytes())?;
        drop(taken);
        let database = folder.database_identity()?;
        Ok(Self { folder, turn, tables, caller, database })
    }

    fn serve(mut self, queue: &Receiver<Job>) {
        let spin = Spin::default();
        while let Some(first) = spin.find(|| queue.try_recv().ok()).or_else(|| queue.recv().ok()) {
            let more = queue.try_iter().take(BATCH_MAX - 1);
            let batch = std::iter::once(first).chain(more).collect();
            let (completions, committed) = self.serve_batch(batch);
            for complete in completions {
                complete(committed.clone());
            }
        }
    }

    /// One turn: the batch, then the wake-ups that follow from it.
    fn serve_batch(&mut self, batch: Vec<Job>) -> (Vec<Completion>, BatchOutcome<()>) {
        let turn = match self.take_turn() {
            Ok(turn) => turn,
            Err(error) => return refuse(batch, error),
        };
        let (completions, committed) = self.run_batch(batch);
        if committed.is_ok() {
            self.follow_up();
        }
        drop(turn);
        (completions, committed)
    }

    fn take_turn(&self) -> Outcome<Turn> {
        let turn = Turn::take(&self.turn, &self.folder)?;
        match self.folder.database_identity() {
            Ok(found) if found == self.database => Ok(turn),
            _ => Err(LocalError::Replaced),
        }
    }

    fn run_batch(&mut self, batch: Vec<Job>) -> (Vec<Completion>, BatchOutcome<()>) {
        if let Err(error) = self.tables.begin(batch.len()) {
            return refuse(batch, error);
        }
        let completions = batch.into_iter().filter_map(|job| self.run_job(job)).collect();
        let committed = self.tables.commit().map_err(|error| {
            self.tables.roll_back();
            Arc::new(error)
        });
        (completions, committed)
    }

    /// After some errors SQLite rolls the whole batch back by itself: what comes later must not commit alone.
    fn run_job(&mut self, job: Job) -> Option<Completion> {
        if self.tables.is_in_batch() {
            job(Ok(&mut self.tables))
        } else {
            job(Err(Arc::new(LocalError::RolledBack)))
        }
    }

    /// What a committed batch leads to: wake-ups, sockets to remove, and more tokens in reserve.
    fn follow_up(&mut self) {
        loop {
            let news = self.tables.take_news();
            news.gone.iter().for_each(|peer| self.caller.remove(*peer));
            let gone = self.caller.tell(&news.wakes);
            if gone.is_empty() {
                break;
            }
            if let Err(error) = self.forget(&gone) {
                tracing::warn!(%error, "processes that are gone could not be taken out of the line");
                break;
            }
        }
        if let Err(error) = self.tables.reserve_if_low() {
            tracing::warn!(%error, "no more tokens could be reserved; trying again with the next request");
        }
    }

    fn forget(&mut self, gone: &[PeerId]) -> Outcome<()> {
        self.tables.begin(1)?;
        let forgotten = gone.iter().try_for_each(|peer| self.tables.forget(*peer));
        let committed = forgotten.and_then(|()| self.tables.commit());
        committed.inspect_err(|_| self.tables.roll_back())
    }
}

/// Answers a batch that cannot be begun.
fn refuse(batch: Vec<Job>, error: LocalError) -> (Vec<Completion>, BatchOutcome<()>) {
    let error = Arc::new(error);
    let completions = batch.into_iter().filter_map(|job| job(Err(Arc::clone(&error)))).collect();
    (completions, Err(error))
}

fn connection(folder: &Folder) -> Outcome<Connection> {
    // The turn keeps two of our threads from using it at once, so SQLite need not.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(folder.database(), flags)?;
    // For tools that look into the file meanwhile: our own writers take turns and are never busy.
    connection.busy_timeout(std::time::Duration::from_secs(1))?;
    Ok(connection)
}
