//! The parts that processes of our own play.

use std::{
    fs::{self, OpenOptions},
    io::{Read, Write},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use cerrojo::Instant;

use crate::{Result, args::Role, fleet_turns, process, store, turns::Place};

pub(crate) fn run(role: &Role) -> Result<()> {
    match role {
        Role::TakeTurns(contest) => store::one_thread()?.block_on(take_turns(&contest.place)),
        Role::Wait(contest) => store::one_thread()?.block_on(wait(&contest.place)),
        Role::HoldMany { url, count } => store::two_workers()?.block_on(hold_many(url, *count)),
        Role::FleetTurns(job) => fleet_turns::run(job),
        Role::AddOne { count, tokens } => add_one(count, tokens),
    }
}

pub(crate) fn say(line: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}

/// Does something once standard input has ended.
pub(crate) fn at_end_of_input(then: impl FnOnce() + Send + 'static) {
    std::thread::spawn(move || {
        // An error is an end too.
        drop(std::io::stdin().read_to_end(&mut Vec::new()));
        then();
    });
}

async fn take_turns(place: &str) -> Result<()> {
    let place = Place::open(place).await?;
    let over = Arc::new(AtomicBool::new(false));
    let tell = Arc::clone(&over);
    at_end_of_input(move || tell.store(true, Ordering::Relaxed));
    while !over.load(Ordering::Relaxed) {
        say(&place.hold().await?.to_string())?;
    }
    Ok(())
}

async fn wait(place: &str) -> Result<()> {
    at_end_of_input(|| std::process::exit(0));
    let place = Place::open(place).await?;
    say("waiting")?;
    place.hold().await?;
    Err("the wait was not in vain".into())
}

/// Prints bytes for each lock held, and the seconds that it took to acquire them all.
async fn hold_many(url: &str, count: u32) -> Result<()> {
    let locks = store::open(url).await?;
    locks.acquire("bench/warm-up").await?.release().await?;
    let (start, before) = (Instant::now(), process::resident_bytes()?);
    let mut held = Vec::new();
    for number in 0..count {
        held.push(locks.acquire(format!("bench/held/{number}")).await?);
    }
    let grown = process::resident_bytes()? - before;
    let took = Instant::now().since(start).as_secs_f64();
    say(&format!("{} {took}", grown / f64::from(count)))?;
    drop(held);
    Ok(())
}

/// Reads, adds and writes as carelessly as it can: only the lock around it makes it right.
fn add_one(count: &Path, tokens: &Path) -> Result<()> {
    let before: u64 = fs::read_to_string(count)?.trim().parse()?;
    if let Some(token) = std::env::var_os("CERROJO_TOKEN") {
        let mut log = OpenOptions::new().append(true).open(tokens)?;
        writeln!(log, "{}", token.display())?;
    }
    Ok(fs::write(count, (before + 1).to_string())?)
}
