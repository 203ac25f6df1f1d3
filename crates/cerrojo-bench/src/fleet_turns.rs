//! The workers of the libraries in Rust: what [`cerrojo_bench::fleet`] says of workers.

mod locks;
mod ours;
mod redis;
mod sql;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use ::redis::{AsyncCommands, aio::MultiplexedConnection};
use cerrojo::{Instant, clock};
use cerrojo_bench::peer::Peer;
use tokio::task::JoinSet;

use self::locks::{Held, Locks};
use crate::{Result, store, worker};

/// What one worker does; see [`cerrojo_bench::fleet::Job`].
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Job {
    /// The library.
    peer: Peer,
    #[arg(long, value_delimiter = ',')]
    nodes: Vec<u16>,
    #[arg(long)]
    url: Option<String>,
    #[arg(long)]
    name: String,
    #[arg(long)]
    own_names: bool,
    #[arg(long)]
    tasks: u32,
    #[arg(long)]
    rounds: usize,
    #[arg(long)]
    hold: u64,
    #[arg(long)]
    between: u64,
    #[arg(long)]
    ttl: u64,
    #[arg(long)]
    tries: bool,
    #[arg(long)]
    id: String,
    #[arg(long, requires = "counter_at")]
    counter: Option<String>,
    #[arg(long)]
    counter_at: Option<u16>,
    #[arg(long)]
    format: Option<String>,
}

/// A number in a server, and who writes it.
#[derive(Clone)]
struct Counter {
    connection: MultiplexedConnection,
    key: String,
    id: String,
}

/// Task, asked, acquired, released.
type Turn = [u64; 4];

pub(crate) fn run(job: &Job) -> Result<()> {
    let runtime = if job.tasks == 1 { store::one_thread() } else { store::two_workers() };
    runtime?.block_on(serve(job))
}

async fn serve(job: &Job) -> Result<()> {
    let locks = Locks::open(job).await?;
    let counter = Counter::open(job).await?;
    worker::say("ready")?;
    std::io::stdin().read_line(&mut String::new())?;
    let over = Arc::new(AtomicBool::new(false));
    let tell = Arc::clone(&over);
    worker::at_end_of_input(move || tell.store(true, Ordering::Relaxed));
    let mut tasks = JoinSet::new();
    for (task, locks) in (0..).zip(locks) {
        tasks.spawn(take_turns(locks, counter.clone(), job.clone(), task, Arc::clone(&over)));
    }
    let mut turns = Vec::new();
    while let Some(own) = tasks.join_next().await {
        turns.extend(own??);
    }
    worker::say(&serde_json::to_string(&turns)?)
}

async fn take_turns(
    locks: Locks,
    counter: Option<Counter>,
    job: Job,
    task: u32,
    over: Arc<AtomicBool>,
) -> Result<Vec<Turn>> {
    let name = if job.own_names { format!("{}/{task}", job.name) } else { job.name.clone() };
    let mut turns = Vec::new();
    while turns.len() < job.rounds && !over.load(Ordering::Relaxed) {
        let asked = now();
        let Some(held) = take(&locks, &job, &name).await? else {
            turns.push([task.into(), asked, 0, now()]);
            continue;
        };
        let acquired = now();
        work(counter.clone(), job.hold).await?;
        turns.push([task.into(), asked, acquired, now()]);
        locks.release(held).await?;
        pause(job.between).await;
    }
    Ok(turns)
}

async fn take(locks: &Locks, job: &Job, name: &str) -> Result<Option<Held>> {
    if job.tries {
        return locks.try_acquire(name, job.ttl).await;
    }
    Ok(Some(locks.acquire(name, job.ttl).await?))
}

fn now() -> u64 {
    Instant::now().as_nanos()
}

async fn pause(ms: u64) {
    if ms > 0 {
        clock::sleep(Duration::from_millis(ms)).await;
    }
}

/// What is done inside the lock.
async fn work(counter: Option<Counter>, hold_ms: u64) -> Result<()> {
    match counter {
        Some(counter) => counter.add_one(hold_ms).await,
        None => {
            pause(hold_ms).await;
            Ok(())
        }
    }
}

impl Job {
    fn one_node(&self) -> Result<u16> {
        match *self.nodes.as_slice() {
            [one] => Ok(one),
            _ => Err(format!("{} knows one server only", self.peer).into()),
        }
    }
}

impl Counter {
    async fn open(job: &Job) -> Result<Option<Self>> {
        let (Some(key), Some(port)) = (&job.counter, job.counter_at) else {
            return Ok(None);
        };
        let (key, id, connection) = (key.clone(), job.id.clone(), redis::connect(port).await?);
        Ok(Some(Self { key, id, connection }))
    }

    /// Reads, adds and writes as carelessly as it can: only the lock around it makes it right.
    async fn add_one(mut self, hold_ms: u64) -> Result<()> {
        let before: Option<u64> = self.connection.get(&self.key).await?;
        pause(hold_ms).await;
        let () = self.connection.set(&self.key, before.unwrap_or_default() + 1).await?;
        let () = self.connection.rpush(format!("{}/order", self.key), &self.id).await?;
        Ok(())
    }
}
