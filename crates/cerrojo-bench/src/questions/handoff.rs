//! How long a lock takes from one holder to the next, and what waiting costs.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc::{self, Receiver},
    },
    time::Duration,
};

use cerrojo::clock;
use tokio::task::JoinSet;

use crate::{
    Result,
    args::Args,
    harness::{Played, Question},
    process::{self, Said, Worker},
    store::{self, AnyFenced},
    turns::{self, Hold, Place},
};

const WAITERS: u32 = 16;

/// Hand-overs at the start that do not count: not all waiters are there yet.
const WARM_UP: usize = 32;

/// A worker that says nothing for so long has failed.
const PATIENCE: Duration = Duration::from_secs(30);

const BY_FLOCK: &str = "flock(2), 16 processes";

pub(crate) fn question(args: &Args) -> Result<Question> {
    let asks = "from just before release to the next of 16 waiters having the lock";
    let mut question = Question::new(args, "handoff", asks)?.compared_with(BY_FLOCK, 5);
    let holds = WARM_UP + if args.quick { 400 } else { 600 };
    let [flocked, local] = places(&question.folder);
    let same = local.clone();
    question.add(BY_FLOCK, move || of_processes(&flocked, holds));
    question.add("local, 16 processes", move || of_processes(&local, holds));
    question.add("local, 16 tasks", move || of_tasks(&same, holds));
    question.add("memory, 16 tasks", move || of_tasks("memory:", holds));
    Ok(question)
}

fn places(folder: &tempfile::TempDir) -> [String; 2] {
    let file = folder.path().join("flocked");
    [format!("flock:{}", file.display()), store::local_url(&folder.path().join("store"))]
}

fn of_processes(place: &str, wanted: usize) -> Result<Played> {
    let (mut workers, said) = start("take-turns", place)?;
    let mut holds = Vec::new();
    while holds.len() < wanted {
        holds.push(hold_said(&said.recv_timeout(PATIENCE)?)?);
    }
    workers.iter_mut().for_each(Worker::finish);
    drain(&said)?;
    Ok(turns::played(holds, WARM_UP))
}

fn start(part: &str, place: &str) -> Result<(Vec<Worker>, Receiver<Said>)> {
    let (say, said) = mpsc::channel();
    let start_one = |_| Worker::start(&[part, place], say.clone());
    Ok(((0..WAITERS).map(start_one).collect::<Result<_>>()?, said))
}

fn hold_said(said: &Said) -> Result<(u32, Hold)> {
    Ok((said.pid, said.line.parse()?))
}

/// Until all have ended.
fn drain(said: &Receiver<Said>) -> Result<()> {
    loop {
        match said.recv_timeout(PATIENCE) {
            Ok(_) => {}
            Err(mpsc::RecvTimeoutError::Disconnected) => return Ok(()),
            Err(timeout) => return Err(timeout.into()),
        }
    }
}

fn of_tasks(url: &str, wanted: usize) -> Result<Played> {
    store::two_workers()?.block_on(async {
        let locks = store::open(url).await?;
        let count = Arc::new(AtomicUsize::new(0));
        let mut tasks = JoinSet::new();
        for task in 0..WAITERS {
            tasks.spawn(take_turns(task, locks.clone(), Arc::clone(&count), wanted));
        }
        let mut holds = Vec::new();
        while let Some(own) = tasks.join_next().await {
            holds.extend(own??);
        }
        Ok(turns::played(holds, WARM_UP))
    })
}

async fn take_turns(
    task: u32,
    locks: AnyFenced,
    count: Arc<AtomicUsize>,
    wanted: usize,
) -> Result<Vec<(u32, Hold)>> {
    let mut holds = Vec::new();
    while count.fetch_add(1, Ordering::Relaxed) < wanted {
        holds.push((task, turns::hold_lock(&locks).await?));
    }
    Ok(holds)
}

pub(crate) fn idle_question(args: &Args) -> Result<Question> {
    let asks = "CPU of each of 16 processes that wait for a lock while nothing happens";
    let mut question = Question::new(args, "idle", asks)?.compared_with(BY_FLOCK, 3);
    let length = Duration::from_secs(if args.quick { 2 } else { 10 });
    let [flocked, local] = places(&question.folder);
    question.add(BY_FLOCK, move || idle(&flocked, length));
    question.add("local, 16 processes", move || idle(&local, length));
    Ok(question)
}

/// Holds the lock ourselves while the others wait.
fn idle(place: &str, length: Duration) -> Result<Played> {
    store::two_workers()?.block_on(async {
        match Place::open(place).await? {
            Place::Flock(file) => {
                file.lock()?;
                idle_meanwhile(place, length).await
            }
            Place::Lock(locks) => {
                let guard = locks.acquire(turns::NAME).await?;
                let played = idle_meanwhile(place, length).await?;
                guard.release().await?;
                Ok(played)
            }
        }
    })
}

async fn idle_meanwhile(place: &str, length: Duration) -> Result<Played> {
    let (workers, said) = start("wait", place)?;
    for _ in &workers {
        said.recv_timeout(PATIENCE)?;
    }
    // Each says that it waits just before it does.
    clock::sleep(Duration::from_secs(1)).await;
    let before = cpu_seconds(&workers)?;
    clock::sleep(length).await;
    let used = cpu_seconds(&workers)?.into_iter().zip(before).map(|(after, before)| after - before);
    let percent = used.map(|seconds| 100.0 * seconds / length.as_secs_f64()).collect();
    Ok(Played::default().figure("CPU of one waiter", "%", percent))
}

fn cpu_seconds(workers: &[Worker]) -> Result<Vec<f64>> {
    workers.iter().map(|worker| process::cpu_seconds(worker.pid())).collect()
}
