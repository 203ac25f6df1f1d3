//! Other processes: this very program, started again as `--child ROLE URL ...`. They talk by lines.

use std::{collections::HashMap, io, process::ExitCode, time::Duration};

use cerrojo::{ApproximateGuard, ErrorKind, Instant, Result, Ttl, clock};
use cerrojo_testbed::Process;

use crate::site::{Locks, Outcome, child_main, connect, millis, opened, runtime, say, talk, ttl};

/// A child that has connected and does what it is told.
pub(crate) fn talker(url: &str) -> Outcome<Process> {
    opened(&["talk", url])
}

/// A child that acquires and releases short leases of many names without end.
pub(crate) fn churner(url: &str) -> Outcome<Process> {
    opened(&["churn", url])
}

/// A member of a fleet: see [`serve_fleet`].
pub(crate) fn member(url: &str, number: usize, ttl_ms: u64) -> Outcome<Process> {
    opened(&["fleet", url, &number.to_string(), &ttl_ms.to_string()])
}

/// Plays a child's part, if this process is one.
pub(crate) fn main() -> Option<ExitCode> {
    child_main(play)
}

fn play(role: &str, url: &str, more: &[&str]) -> Result<()> {
    let runtime = runtime();
    let locks = runtime.block_on(connect(url))?;
    say("open");
    match (role, more) {
        ("talk", []) => {
            let mut held = HashMap::new();
            talk(&runtime, async |words| obey(&locks, &mut held, words).await);
            Ok(())
        }
        ("churn", []) => runtime.block_on(churn(&locks)),
        ("fleet", [number, ttl_ms]) => {
            let ttl = ttl(ttl_ms.parse().unwrap());
            runtime.block_on(serve_fleet(&locks, number.parse().unwrap(), ttl))
        }
        other => panic!("no role {other:?}"),
    }
}

async fn obey(
    locks: &Locks,
    held: &mut HashMap<String, ApproximateGuard>,
    words: &[&str],
) -> Result<String> {
    match words {
        ["acquire", name, ttl_ms, wait_ms] => {
            let wait = millis(wait_ms.parse().unwrap());
            let ttl = Ttl::millis(ttl_ms.parse().unwrap())?;
            held.insert((*name).to_owned(), locks.acquire(*name).ttl(ttl).wait(wait).await?);
            Ok("granted".to_owned())
        }
        ["left", name] => Ok(held[*name].remaining().as_millis().to_string()),
        _ => panic!("no command {words:?}"),
    }
}

async fn churn(locks: &Locks) -> Result<()> {
    let tasks = (0..20).map(|task| tokio::spawn(churn_one(locks.clone(), task)));
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    Ok(())
}

/// What fails is tried again: there are faults on purpose.
async fn churn_one(locks: Locks, task: usize) {
    for round in task.. {
        let name = format!("n{}", round % 6);
        let wait = millis([0, 50, 2_000][round % 3]);
        let ttl = ttl([10, 100, 300][round % 3]);
        if let Ok(guard) = locks.acquire(name.as_str()).ttl(ttl).wait(wait).await {
            clock::sleep(millis([0, 5, 150][(round / 3) % 3])).await;
            drop(guard);
        }
    }
}

/// Holds `own-N` all the time, and enters `job` again and again, until its input ends. Says
///
/// * `in AT`, `out AT` for each stay at `job`, by the machine's clock; `lost AT UNTIL` instead of `out` when it read
///   lost, with the end of validity that it knew of before;
/// * `own STATE RENEWALS` at the end.
async fn serve_fleet(locks: &Locks, number: usize, ttl: Ttl) -> Result<()> {
    let own = locks.acquire(format!("own-{number}").as_str()).ttl(ttl).await?;
    let (ended, mut end) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        drop(io::copy(&mut io::stdin(), &mut io::sink()));
        let _ = ended.send(());
    });
    while end.try_recv().is_err() {
        // Some stand in the line, others come by.
        let wait = if number.is_multiple_of(2) { millis(500) } else { Duration::ZERO };
        match locks.acquire("job").ttl(ttl).wait(wait).await {
            Ok(guard) => stay(guard, ttl.get() * 3 / 2).await,
            Err(error) if error.kind() == ErrorKind::Contended => clock::sleep(millis(20)).await,
            Err(error) => return Err(error),
        }
    }
    say(&format!("own {:?} {}", own.state(), own.renewals()));
    own.release().await
}

async fn stay(guard: ApproximateGuard, length: Duration) {
    let end = Instant::now() + length;
    let mut until = guard.valid_until();
    say(&format!("in {}", Instant::now().as_nanos()));
    while let Some(known) = until {
        match clock::until(end, guard.signal().valid_until_changes(until)).await {
            Ok(Some(later)) => until = Some(later),
            Ok(None) => {
                let now = Instant::now().as_nanos();
                return say(&format!("lost {now} {}", known.as_nanos()));
            }
            Err(clock::Elapsed) => break,
        }
    }
    say(&format!("out {}", Instant::now().as_nanos()));
    drop(guard.release().await);
}
