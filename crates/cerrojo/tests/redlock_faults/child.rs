//! Other processes: this very program, started again as `--child ROLE URL ...`. They talk by lines.

use std::{fs, io, process::ExitCode};

use cerrojo::{ApproximateGuard, Deadline, Instant, Result, clock};
use cerrojo_testbed::Process;

use crate::site::{Locks, Outcome, child_main, connect, millis, opened, runtime, say, ttl};

/// A child that has connected; told `acquire NAME TTL_MS`, it waits, says `granted`, and holds until it is told the next.
pub(crate) fn talker(url: &str) -> Outcome<Process> {
    opened(&["talk", url])
}

/// A child that has connected; told anything, it counts in this file under the lock `job`, for so long, and says how often.
pub(crate) fn counter(url: &str, file: &str, length_ms: u64) -> Outcome<Process> {
    opened(&["count", url, file, &length_ms.to_string()])
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
        ("talk", []) => talk(&runtime, &locks),
        ("count", [file, length_ms]) => {
            io::stdin().read_line(&mut String::new()).unwrap();
            let end = Instant::now() + millis(length_ms.parse().unwrap());
            say(&runtime.block_on(count(&locks, file, end))?.to_string());
            Ok(())
        }
        other => panic!("no role {other:?}"),
    }
}

/// Does what it is told, line by line, until its input ends.
fn talk(runtime: &tokio::runtime::Runtime, locks: &Locks) -> Result<()> {
    let mut held: Option<ApproximateGuard> = None;
    for line in io::stdin().lines() {
        drop(held.take());
        let line = line.unwrap();
        let words: Vec<&str> = line.split(' ').collect();
        let ["acquire", name, ttl_ms] = words.as_slice() else { panic!("no command {line:?}") };
        let ttl = ttl(ttl_ms.parse().unwrap());
        held = Some(runtime.block_on(locks.acquire(*name).ttl(ttl).into_future())?);
        say("granted");
    }
    Ok(())
}

async fn count(locks: &Locks, file: &str, end: Instant) -> Result<u64> {
    let mut entered = 0;
    while Instant::now() < end {
        let asked = locks.acquire("job").ttl(ttl(5_000)).wait(Deadline::at(end));
        let Ok(guard) = asked.await else { break };
        let before: u64 = fs::read_to_string(file).unwrap().trim().parse().unwrap();
        clock::sleep(millis(1)).await;
        fs::write(file, (before + 1).to_string()).unwrap();
        entered += 1;
        guard.release().await?;
    }
    Ok(entered)
}
