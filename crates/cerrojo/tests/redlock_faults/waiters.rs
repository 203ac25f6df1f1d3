//! Many who want one lock: one at a time, everybody in the end, and nobody is kept up by who is stopped.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use cerrojo::{Deadline, Instant, clock};
use cerrojo_testbed::Direction;
use libtest_mimic::{Failed, Trial};

use crate::{
    child,
    site::{Fleet, LONG, Locks, Node, Outcome, eventually, millis, trial, ttl},
};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("five_processes_take_turns_and_lose_no_update", processes),
        trial("two_nodes_are_not_split_for_ever", || take_turns(2)),
        trial("four_nodes_are_not_split_for_ever", || take_turns(4)),
        trial("waiters_on_nodes_at_unlike_distances_take_turns", distances),
        trial("a_stopped_waiter_keeps_nobody_up", stopped_waiter),
        trial("a_stopped_holder_keeps_others_up_for_its_ttl", stopped_holder),
        trial("waiters_outlive_a_node_that_hangs", hung_node),
        trial("a_node_that_hangs_costs_contending_waiters_its_limit_once", hung_for_long),
    ]
}

/// How often each entered; nobody far more seldom than another.
fn nobody_starves(entered: &[u64]) {
    let (fewest, most) = (entered.iter().min().unwrap(), entered.iter().max().unwrap());
    assert!(*fewest >= 3 && most / fewest <= 20, "{entered:?}");
}

/// How long they contend: the short form, or the long one with `CERROJO_TEST_LONG`.
fn length_ms() -> u64 {
    if std::env::var_os("CERROJO_TEST_LONG").is_some() { 10_000 } else { 4_000 }
}

async fn processes() -> Outcome {
    let fleet = Fleet::start(3)?;
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("counter");
    fs::write(&file, "0")?;
    let path = file.to_str().ok_or("no UTF-8")?;
    let start = |_| child::counter(&fleet.url(""), path, length_ms());
    let mut children = (0..5).map(start).collect::<Result<Vec<_>, Failed>>()?;
    for child in &mut children {
        child.say("go")?;
    }
    let mut entered = Vec::new();
    for child in &mut children {
        let said = child.line(LONG)?;
        entered.push(said.parse().map_err(|_| said)?);
    }
    let counted: u64 = fs::read_to_string(&file)?.parse()?;
    assert_eq!(counted, entered.iter().sum::<u64>(), "a lost update: {entered:?}");
    nobody_starves(&entered);
    Ok(())
}

/// Four, with connections of their own.
async fn take_turns(nodes: usize) -> Outcome {
    contend(&Fleet::start(nodes)?).await
}

/// The next nodes of each waiter are the far ones of another.
async fn distances() -> Outcome {
    let fleet = Fleet::start(3)?;
    for (node, delay) in fleet.nodes.iter().zip([0, 2, 5]) {
        node.proxy.delay(Direction::ToServer, millis(delay))?;
    }
    contend(&fleet).await
}

async fn contend(fleet: &Fleet) -> Outcome {
    nobody_starves(&counted(four(fleet).await?).await?);
    Ok(())
}

async fn four(fleet: &Fleet) -> cerrojo::Result<Vec<Locks>> {
    let mut all = Vec::new();
    for _ in 0..4 {
        all.push(fleet.locks().await?);
    }
    Ok(all)
}

/// How often each entered.
async fn counted(all: Vec<Locks>) -> Result<Vec<u64>, Failed> {
    let (counter, end) = (Arc::new(AtomicU64::new(0)), Instant::now() + millis(length_ms()));
    let counts = all.into_iter().map(|locks| count(locks, Arc::clone(&counter), end));
    let entered = counts.collect::<tokio::task::JoinSet<_>>().join_all().await;
    let entered = entered.into_iter().collect::<Result<Vec<u64>, _>>()?;
    assert_eq!(counter.load(Ordering::Relaxed), entered.iter().sum::<u64>(), "a lost update");
    Ok(entered)
}

/// Reads, waits, and writes: only a lock makes that right.
async fn count(locks: Locks, counter: Arc<AtomicU64>, end: Instant) -> cerrojo::Result<u64> {
    let mut entered = 0;
    while Instant::now() < end {
        let asked = locks.acquire("job").ttl(ttl(5_000)).wait(Deadline::at(end));
        let Ok(guard) = asked.await else { break };
        let before = counter.load(Ordering::Relaxed);
        clock::sleep(millis(1)).await;
        counter.store(before + 1, Ordering::Relaxed);
        entered += 1;
        guard.release().await?;
    }
    Ok(entered)
}

/// Longer than a place in line is looked after, far shorter than the TTL.
const SOON: Duration = Duration::from_millis(4_500);

async fn stopped_waiter() -> Outcome {
    let fleet = Fleet::start(3)?;
    let (locks, others) = (fleet.locks().await?, fleet.locks().await?);
    let guard = locks.acquire("a").ttl(ttl(60_000)).await?;
    let mut child = child::talker(&fleet.url(""))?;
    child.say("acquire a 60000")?;
    in_line(&fleet, 1).await?;
    child.freeze()?;
    let next = tokio::spawn(async move { others.acquire("a").ttl(ttl(60_000)).wait(LONG).await });
    in_line(&fleet, 2).await?;
    let start = Instant::now();
    guard.release().await?;
    let guard = next.await??;
    let took = Instant::now().since(start);
    assert!(took < SOON, "after {took:?}");
    child.thaw()?;
    clock::sleep(millis(300)).await;
    guard.release().await?;
    assert_eq!(child.line(LONG)?, "granted");
    Ok(())
}

/// So many wait at each node.
async fn in_line(fleet: &Fleet, waiters: u32) -> Outcome {
    let waiters = waiters.to_string();
    let counts = |node: &Node| node.server.command(&["ZCARD", "cerrojo:{a}:line"]);
    let has_them = |node: &Node| counts(node).is_ok_and(|there| there == waiters.as_str());
    eventually("waiters", || Ok(fleet.nodes.iter().all(has_them))).await
}

async fn stopped_holder() -> Outcome {
    let fleet = Fleet::start(3)?;
    let locks = fleet.locks().await?;
    let mut child = child::talker(&fleet.url(""))?;
    assert_eq!(child.ask("acquire a 2000", LONG)?, "granted");
    child.freeze()?;
    let start = Instant::now();
    let guard = locks.acquire("a").ttl(ttl(60_000)).wait(LONG).await?;
    let took = Instant::now().since(start);
    assert!(took < millis(2_000) + SOON, "after {took:?}");
    child.thaw()?;
    clock::sleep(millis(300)).await;
    // It has read lost by now, and has not released ours.
    assert!(fleet.held_at("a", guard.owner()) >= 2);
    Ok(guard.release().await?)
}

async fn hung_node() -> Outcome {
    let fleet = Fleet::start(3)?;
    let locks = fleet.locks().await?;
    let guard = locks.acquire("a").ttl(ttl(60_000)).await?;
    let mut waiting = tokio::task::JoinSet::new();
    for _ in 0..5 {
        let others = fleet.locks().await?;
        waiting.spawn(async move {
            others.acquire("a").ttl(ttl(60_000)).wait(LONG).await?.release().await
        });
    }
    in_line(&fleet, 5).await?;
    fleet.nodes[0].server.freeze()?;
    guard.release().await?;
    for released in waiting.join_all().await {
        released?;
    }
    Ok(())
}

/// Those who split the votes of the two others wait for it, and keep the lock from all: not each time, or hardly anybody
/// would ever enter. The node's limit here is a quarter of the time.
async fn hung_for_long() -> Outcome {
    let fleet = Fleet::start(3)?;
    let all = four(&fleet).await?;
    fleet.nodes[0].server.freeze()?;
    let entered = counted(all).await?;
    assert!(entered.iter().sum::<u64>() >= 100, "{entered:?}");
    Ok(())
}
