//! SIGKILL at any point of acquire, renew and release costs nobody else anything. Linux only.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a failed step fails the test")]

mod local_child;

use std::{path::Path, process::ExitCode, time::Duration};

use cerrojo::{BoundTo, Instant, Locker, backend::local::Local};
use cerrojo_testbed::Process;
use libtest_mimic::Failed;
use local_child::{LONG, Rising, check_integrity, child, rounds, runtime, spread, token_in};

/// A lease of a dead process must not be waited for as long as its TTL of 30 s.
const AT_ONCE: Duration = Duration::from_secs(10);

fn main() -> ExitCode {
    local_child::main(&[
        ("tokens_rise_and_the_next_enters_over_kills", kills),
        ("a_waiter_enters_as_soon_as_the_holder_is_killed", waiter_enters),
        ("a_waiter_rests_while_a_part_of_the_holder_lives", waiter_rests),
    ])
}

/// Reads until the child says that it starts this step for the given time.
fn hear(child: &Process, step: &str, times: usize, tokens: &mut Rising) -> Result<(), Failed> {
    let mut heard = 0;
    while heard < times {
        let line = child.line(LONG)?;
        assert!(!line.starts_with("error"), "{line}");
        token_in(&line).into_iter().for_each(|token| tokens.take(token));
        heard += usize::from(line == step);
    }
    Ok(())
}

fn kills() -> Result<(), Failed> {
    let place = tempfile::tempdir()?;
    let store = place.path().join("store");
    let (runtime, mut tokens) = (runtime(), Rising::default());
    for round in 0..rounds(25, 500) {
        let step = ["acquire", "renew", "release", "prune"][round % 4];
        let mut child = Process::spawn(&mut child("churn", &store, &["-"]))?;
        let start = Instant::now();
        // The first grant is `kept`, which the child before had when it was killed.
        hear(&child, "renew", 1, &mut tokens)?;
        assert!(Instant::now().since(start) < AT_ONCE, "round {round}");
        hear(&child, step, 1 + round % 3, &mut tokens)?;
        child.kill_after(spread(round, Duration::from_micros(600)))?;
        tokens.take_all(&child.rest(LONG)?);
        check_integrity(&store);
        if round % 3 == 0 {
            runtime.block_on(next_enters(&store, &mut tokens))?;
        }
    }
    Ok(())
}

/// This process is the next holder of whatever the killed child may have held.
async fn next_enters(store: &Path, tokens: &mut Rising) -> Result<(), Failed> {
    let locks = Locker::new(Local::connect(store).await?);
    for name in ["kept", "a", "b", "c"] {
        let guard = locks.acquire(name).wait(AT_ONCE).await?;
        tokens.take(guard.token().get());
        guard.release().await?;
    }
    Ok(())
}

fn waiter_enters() -> Result<(), Failed> {
    let place = tempfile::tempdir()?;
    let store = place.path().join("store");
    let runtime = runtime();
    for _ in 0..rounds(3, 50) {
        let mut holder = local_child::open_talker(&store);
        let held = token_in(&holder.ask("acquire a 30000 0", LONG)?).unwrap();
        let mut waiter = local_child::open_talker(&store);
        waiter.say("acquire a 30000 10000")?;
        runtime.block_on(cerrojo::clock::sleep(Duration::from_millis(50)));
        holder.kill()?;
        let entered = token_in(&waiter.line(LONG)?);
        assert!(entered > Some(held), "{entered:?} after {held}");
    }
    Ok(())
}

/// Bound to two processes of which one is gone: nothing to take over yet, and nothing to be busy about.
fn waiter_rests() -> Result<(), Failed> {
    let place = tempfile::tempdir()?;
    let store = place.path().join("store");
    let (mut gone, mut alive) =
        (local_child::open_talker(&store), local_child::open_talker(&store));
    let processes = vec![gone.id(), alive.id()];
    runtime().block_on(async {
        let locks = Locker::new(Local::connect(&store).await?);
        let bound_to = BoundTo::All { processes, groups: vec![] };
        let guard = locks.acquire("a").bound_to(bound_to).await?;
        let held = guard.token().get();
        guard.detach().await?;
        let mut waiter = local_child::open_talker(&store);
        waiter.say("acquire a 30000 20000")?;
        gone.kill()?;
        cerrojo::clock::sleep(Duration::from_millis(600)).await;
        let before = cpu_ticks(waiter.id());
        cerrojo::clock::sleep(Duration::from_secs(1)).await;
        let used = cpu_ticks(waiter.id()) - before;
        assert!(used < 20, "the waiter used {used} % of a processor");
        alive.kill()?;
        assert!(token_in(&waiter.line(LONG)?) > Some(held));
        Ok(())
    })
}

/// Hundredths of a second of processor time that a process has used.
fn cpu_ticks(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let (_, fields) = stat.rsplit_once(')').unwrap();
    fields
        .split_ascii_whitespace()
        .skip(11)
        .take(2)
        .map(|field| field.parse::<u64>().unwrap())
        .sum()
}
