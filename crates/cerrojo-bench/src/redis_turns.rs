//! The workers of the libraries in Rust: what [`cerrojo_bench::fleet`] says of workers.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use cerrojo::{AnyLocker, ApproximateGuard, Erased, Instant, Locker, NoToken, Options, Ttl, clock};
use cerrojo_bench::peer::Peer;
use redis::{AsyncCommands, Script, aio::MultiplexedConnection};
use rslock::{LockGuard, LockManager};
use tokio::task::JoinSet;

use crate::{Result, store, worker};

/// What one worker does; see [`cerrojo_bench::fleet::Job`].
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Job {
    /// The library.
    peer: Peer,
    #[arg(long)]
    redis: u16,
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
    id: String,
    #[arg(long)]
    counter: Option<String>,
    #[arg(long)]
    format: Option<String>,
}

/// A library's lock, ready to be used by many tasks.
#[derive(Clone)]
enum Locks {
    Ours(Locker<Erased<NoToken>>),
    Raw(Raw),
    Rslock(LockManager),
    NoLock,
}

enum Held {
    Ours(ApproximateGuard),
    Raw { name: String, owner: u64 },
    Rslock(LockGuard),
    NoLock,
}

/// Two scripts on one connection.
#[derive(Clone)]
struct Raw {
    connection: MultiplexedConnection,
    take: Script,
    give: Script,
}

/// Task, asked, acquired, released.
type Turn = [u64; 4];

pub(crate) fn run(job: &Job) -> Result<()> {
    let runtime = if job.tasks == 1 { store::one_thread() } else { store::two_workers() };
    runtime?.block_on(serve(job))
}

async fn serve(job: &Job) -> Result<()> {
    let locks = Locks::open(job).await?;
    let connection = connect(job).await?;
    worker::say("ready")?;
    std::io::stdin().read_line(&mut String::new())?;
    let over = Arc::new(AtomicBool::new(false));
    let tell = Arc::clone(&over);
    worker::at_end_of_input(move || tell.store(true, Ordering::Relaxed));
    let mut tasks = JoinSet::new();
    for task in 0..job.tasks {
        let (locks, connection) = (locks.clone(), connection.clone());
        tasks.spawn(take_turns(locks, connection, job.clone(), task, Arc::clone(&over)));
    }
    let mut turns = Vec::new();
    while let Some(own) = tasks.join_next().await {
        turns.extend(own??);
    }
    worker::say(&serde_json::to_string(&turns)?)
}

async fn connect(job: &Job) -> Result<MultiplexedConnection> {
    let client = redis::Client::open(url(job))?;
    Ok(client.get_multiplexed_async_connection().await?)
}

fn url(job: &Job) -> String {
    format!("redis://127.0.0.1:{}", job.redis)
}

async fn take_turns(
    locks: Locks,
    connection: MultiplexedConnection,
    job: Job,
    task: u32,
    over: Arc<AtomicBool>,
) -> Result<Vec<Turn>> {
    let name = if job.own_names { format!("{}/{task}", job.name) } else { job.name.clone() };
    let mut turns = Vec::new();
    while turns.len() < job.rounds && !over.load(Ordering::Relaxed) {
        let asked = now();
        let held = locks.acquire(&name, job.ttl).await?;
        let acquired = now();
        work(&connection, &job).await?;
        turns.push([task.into(), asked, acquired, now()]);
        locks.release(held).await?;
        pause(job.between).await;
    }
    Ok(turns)
}

fn now() -> u64 {
    Instant::now().as_nanos()
}

async fn pause(ms: u64) {
    if ms > 0 {
        clock::sleep(Duration::from_millis(ms)).await;
    }
}

/// Reads, adds and writes as carelessly as it can: only the lock around it makes it right.
async fn work(connection: &MultiplexedConnection, job: &Job) -> Result<()> {
    let mut connection = connection.clone();
    let Some(counter) = &job.counter else {
        pause(job.hold).await;
        return Ok(());
    };
    let before: Option<u64> = connection.get(counter).await?;
    pause(job.hold).await;
    let () = connection.set(counter, before.unwrap_or_default() + 1).await?;
    let () = connection.rpush(format!("{counter}/order"), &job.id).await?;
    Ok(())
}

impl Locks {
    async fn open(job: &Job) -> Result<Self> {
        match job.peer {
            Peer::Ours => Ok(Self::Ours(ours(job).await?)),
            Peer::Raw => Ok(Self::Raw(Raw::new(connect(job).await?))),
            Peer::Rslock => Ok(Self::Rslock(LockManager::new(vec![url(job)]))),
            Peer::NoLock => Ok(Self::NoLock),
            other => Err(format!("{other} has a program of its own").into()),
        }
    }

    /// Waits as the library waits; raw scripts do not.
    async fn acquire(&self, name: &str, ttl_ms: u64) -> Result<Held> {
        match self {
            Self::Ours(locks) => {
                let ttl = Ttl::millis(ttl_ms)?;
                Ok(Held::Ours(locks.acquire(name).ttl(ttl).await?))
            }
            Self::Raw(raw) => raw.take(name, ttl_ms).await,
            Self::Rslock(locks) => {
                Ok(Held::Rslock(locks.acquire(name, Duration::from_millis(ttl_ms)).await?))
            }
            Self::NoLock => Ok(Held::NoLock),
        }
    }

    async fn release(&self, held: Held) -> Result<()> {
        match (self, held) {
            (_, Held::Ours(guard)) => guard.release().await?,
            (Self::Raw(raw), Held::Raw { name, owner }) => raw.give(&name, owner).await?,
            (_, Held::Rslock(guard)) => guard.release().await,
            _ => {}
        }
        Ok(())
    }
}

async fn ours(job: &Job) -> Result<Locker<Erased<NoToken>>> {
    let format = job.format.as_ref().map(|format| format!("?format={format}"));
    let url = url(job) + &format.unwrap_or_default();
    match cerrojo::connect(&url, Options::default()).await? {
        AnyLocker::Approximate(locks) => Ok(locks),
        _ => Err(format!("{url} is not an approximate store").into()),
    }
}

impl Raw {
    fn new(connection: MultiplexedConnection) -> Self {
        Self {
            connection,
            take: Script::new("return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])"),
            give: Script::new(
                "return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1])",
            ),
        }
    }

    async fn take(&self, name: &str, ttl_ms: u64) -> Result<Held> {
        let (mut connection, owner) = (self.connection.clone(), now());
        let mut call = self.take.key(name);
        let taken: Option<String> =
            call.arg(owner).arg(ttl_ms).invoke_async(&mut connection).await?;
        taken.ok_or("raw scripts do not wait")?;
        Ok(Held::Raw { name: name.to_owned(), owner })
    }

    async fn give(&self, name: &str, owner: u64) -> Result<()> {
        let mut connection = self.connection.clone();
        let given: bool = self.give.key(name).arg(owner).invoke_async(&mut connection).await?;
        if given { Ok(()) } else { Err("not held any more".into()) }
    }
}
