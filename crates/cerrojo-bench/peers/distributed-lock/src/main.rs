//! Takes turns with the lock of the crate `distributed-lock` in PostgreSQL, as it comes but for its pool. That has a
//! connection for each task: with fewer, tasks would wait for connections and not for the lock.
//!
//! The protocol is that of `cerrojo_bench::fleet`.

mod job;

use std::{
    error::Error,
    io::Read,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use distributed_lock_core::traits::{DistributedLock, LockHandle, LockProvider};
use distributed_lock_postgres::PostgresLockProvider;
use rustix::time::{ClockId, clock_gettime};
use sqlx::postgres::{PgPool, PgPoolOptions};
use tokio::{
    runtime::{Builder, Runtime},
    task::JoinSet,
};

use crate::job::Job;

type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

/// Task, asked, acquired, released.
type Turn = [u64; 4];

fn main() -> ExitCode {
    match Job::from_args(std::env::args()).and_then(run) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("distributed-lock: {why}");
            ExitCode::FAILURE
        }
    }
}

fn run(job: Job) -> Result<()> {
    runtime(job.tasks)?.block_on(serve(Arc::new(job)))
}

/// As the other workers in Rust have it.
fn runtime(tasks: u32) -> std::io::Result<Runtime> {
    match tasks {
        1 => Builder::new_current_thread().enable_all().build(),
        _ => Builder::new_multi_thread().worker_threads(2).enable_all().build(),
    }
}

async fn serve(job: Arc<Job>) -> Result<()> {
    let locks = PostgresLockProvider::builder().pool(connect(&job).await?).build().await?;
    println!("ready");
    std::io::stdin().read_line(&mut String::new())?;
    let over = at_end_of_input();
    let mut tasks = JoinSet::new();
    for task in 0..job.tasks {
        let lock = locks.create_lock(&job.name_of(task));
        tasks.spawn(take_turns(lock, Arc::clone(&job), task, Arc::clone(&over)));
    }
    let mut turns = Vec::new();
    while let Some(own) = tasks.join_next().await {
        turns.extend(own??);
    }
    println!("{turns:?}");
    Ok(())
}

/// All connections are made before the first turn.
async fn connect(job: &Job) -> Result<PgPool> {
    let options = PgPoolOptions::new().min_connections(job.tasks).max_connections(job.tasks);
    let pool = options.connect(&job.url).await?;
    let mut all = Vec::new();
    for _ in 0..job.tasks {
        all.push(pool.acquire().await?);
    }
    Ok(pool)
}

fn at_end_of_input() -> Arc<AtomicBool> {
    let over = Arc::new(AtomicBool::new(false));
    let tell = Arc::clone(&over);
    std::thread::spawn(move || {
        // An error is an end too.
        drop(std::io::stdin().read_to_end(&mut Vec::new()));
        tell.store(true, Ordering::Relaxed);
    });
    over
}

async fn take_turns<L: DistributedLock>(
    lock: L,
    job: Arc<Job>,
    task: u32,
    over: Arc<AtomicBool>,
) -> Result<Vec<Turn>> {
    let mut turns = Vec::new();
    while turns.len() < job.rounds && !over.load(Ordering::Relaxed) {
        let asked = now();
        let held = lock.acquire(None).await?;
        let acquired = now();
        pause(job.hold).await;
        turns.push([task.into(), asked, acquired, now()]);
        held.release().await?;
        pause(job.between).await;
    }
    Ok(turns)
}

async fn pause(length: Duration) {
    if !length.is_zero() {
        tokio::time::sleep(length).await;
    }
}

/// Nanoseconds of the clock that all processes share.
fn now() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}
