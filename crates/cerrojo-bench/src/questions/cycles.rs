//! How often a second a lock can be acquired and released.

use std::{
    fs::File,
    io::{Seek, SeekFrom, Write},
    time::Duration,
};

use cerrojo::{Instant, LockName, Locker, backend::memory::Memory, spi::Backend};
use tokio::{runtime::Runtime, task::JoinSet};

use crate::{
    Result,
    args::Args,
    harness::{Played, Question},
    store,
};

const BLOCK: [u8; 4096] = [7; 4096];
type MakeRuntime = fn() -> Result<Runtime>;

/// How many tasks on which runtime.
const SETTINGS: [(&str, u32, MakeRuntime); 4] = [
    ("1 task on 1 thread", 1, store::one_thread),
    ("1 task", 1, store::two_workers),
    ("16 tasks", 16, store::two_workers),
    ("64 tasks", 64, store::two_workers),
];

const OVERWRITE: &str = "fdatasync, 4 KiB in place";

pub(crate) fn question(args: &Args) -> Result<Question> {
    let asks = "acquire and release, each task its own name, beside bare syncs and flock";
    let mut question = Question::new(args, "cycles", asks)?.compared_with(OVERWRITE, 7);
    let length = Duration::from_millis(if args.quick { 200 } else { 1_000 });
    add_syncs(&mut question, length)?;
    let mut flocked = File::create(question.folder.path().join("flocked"))?;
    question.add("flock(2)", move || timed(length, || flock_cycle(&mut flocked)));
    add_memory(&mut question, length);
    add_local(&mut question, length);
    Ok(question)
}

fn add_syncs(question: &mut Question, length: Duration) -> Result<()> {
    let file = |name| File::create(question.folder.path().join(name));
    let (mut in_place, mut appended) = (file("in place")?, file("appended")?);
    question.add(OVERWRITE, move || timed(length, || overwrite(&mut in_place)));
    question.add("fdatasync, 4 KiB appended", move || timed(length, || append(&mut appended)));
    Ok(())
}

fn overwrite(file: &mut File) -> Result<()> {
    file.seek(SeekFrom::Start(0))?;
    append(file)
}

fn append(file: &mut File) -> Result<()> {
    file.write_all(&BLOCK)?;
    Ok(file.sync_data()?)
}

fn flock_cycle(file: &mut File) -> Result<()> {
    file.lock()?;
    Ok(file.unlock()?)
}

fn add_memory(question: &mut Question, length: Duration) {
    for (name, tasks, runtime) in SETTINGS {
        let play = move || {
            let locks = Locker::new(Memory::new());
            runtime()?.block_on(rate(&locks, tasks, length))
        };
        question.add(format!("memory, {name}"), play);
    }
}

fn add_local(question: &mut Question, length: Duration) {
    let url = store::local_url(&question.folder.path().join("store"));
    for (name, tasks, runtime) in SETTINGS {
        let url = url.clone();
        let play = move || {
            let rated = async { rate(&store::open(&url).await?, tasks, length).await };
            runtime()?.block_on(rated)
        };
        question.add(format!("local, {name}"), play);
    }
}

/// Cycles a second of all tasks together, after a tenth of the time to warm up.
async fn rate<B: Backend>(locks: &Locker<B>, tasks: u32, length: Duration) -> Result<Played> {
    cycle(locks, tasks, length / 10).await?;
    let start = Instant::now();
    let cycles = cycle(locks, tasks, length).await?;
    Ok(per_second(cycles, Instant::now().since(start)))
}

async fn cycle<B: Backend>(locks: &Locker<B>, tasks: u32, length: Duration) -> Result<u64> {
    let end = Instant::now() + length;
    let mut running = JoinSet::new();
    for task in 0..tasks {
        running.spawn(cycle_one(locks.clone(), format!("bench/{task}").parse()?, end));
    }
    let mut sum = 0;
    while let Some(cycles) = running.join_next().await {
        sum += cycles??;
    }
    Ok(sum)
}

async fn cycle_one<B: Backend>(
    locks: Locker<B>,
    name: LockName,
    end: Instant,
) -> cerrojo::Result<u64> {
    let mut cycles = 0;
    while Instant::now() < end {
        locks.acquire(&name).await?.release().await?;
        cycles += 1;
    }
    Ok(cycles)
}

fn timed(length: Duration, mut work: impl FnMut() -> Result<()>) -> Result<Played> {
    let start = Instant::now();
    let mut cycles = 0;
    while Instant::now().since(start) < length {
        work()?;
        cycles += 1;
    }
    Ok(per_second(cycles, Instant::now().since(start)))
}

fn per_second(cycles: u64, took: Duration) -> Played {
    Played::default().figure("cycles", "1/s", vec![cycles as f64 / took.as_secs_f64()])
}
