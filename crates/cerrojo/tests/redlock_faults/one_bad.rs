//! One node of five that is stopped, cut off, refusing, slow or late: nobody notices, and nothing piles up.

use std::{io, time::Duration};

use cerrojo::{Instant, LeaseState, clock};
use cerrojo_testbed::Direction;
use libtest_mimic::{Failed, Trial};
use tokio::runtime::Handle;

use crate::site::{
    Fleet, LONG, Locks, Node, Outcome, connect, eventually, goes_on, millis, trial, ttl,
};

/// What a node is given to answer.
const LIMIT: Duration = Duration::from_millis(500);
const CYCLES: usize = 1_000;
/// How many of them at a time.
const TASKS: usize = 4;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("a_stopped_node_costs_nothing_and_nothing_piles_up", stopped),
        trial("a_node_that_swallows_all_costs_nothing_and_nothing_piles_up", cut_off),
        trial("a_refusing_node_costs_nothing_and_nothing_piles_up", refusing),
        trial("a_node_just_within_its_limit_costs_nothing_and_nothing_piles_up", slow),
        trial("a_node_just_over_its_limit_costs_nothing_and_nothing_piles_up", too_slow),
        trial("a_node_that_answers_late_costs_nothing_and_nothing_piles_up", late),
        trial("a_node_that_comes_back_takes_part_again", comes_back),
    ]
}

async fn stopped() -> Outcome {
    nobody_notices(|node| node.server.freeze()).await
}

async fn cut_off() -> Outcome {
    nobody_notices(|node| {
        node.proxy.hold(Direction::ToServer)?;
        node.proxy.hold(Direction::ToClient)
    })
    .await
}

async fn refusing() -> Outcome {
    nobody_notices(Node::go_down).await
}

async fn slow() -> Outcome {
    nobody_notices(|node| node.proxy.delay(Direction::ToClient, LIMIT * 4 / 5)).await
}

async fn too_slow() -> Outcome {
    nobody_notices(|node| node.proxy.delay(Direction::ToServer, LIMIT * 6 / 5)).await
}

async fn late() -> Outcome {
    nobody_notices(|node| node.proxy.delay(Direction::ToClient, LIMIT * 4)).await
}

async fn warm() -> Result<(Fleet, Locks), Failed> {
    let fleet = Fleet::start(5)?;
    let limit = LIMIT.as_millis();
    let locks = connect(&fleet.url(&format!("node_limit_ms={limit}&call_limit_ms=1000"))).await?;
    locks.acquire("a").wait(LONG).await?.release().await?;
    fleet.held_nowhere("a").await?;
    Ok((fleet, locks))
}

async fn nobody_notices(breaks: fn(&Node) -> io::Result<()>) -> Outcome {
    let (fleet, locks) = warm().await?;
    let held = locks.acquire("held").ttl(ttl(3_000)).wait(LONG).await?;
    let tasks = alive();
    let start = Instant::now();
    breaks(&fleet.nodes[4])?;
    let most_tasks = cycles(&locks).await?;
    let took = Instant::now().since(start);
    assert_eq!(held.state(), LeaseState::Held);
    goes_on(&held).await?;
    held.release().await?;
    // On average far less than the bad node costs when it is waited for.
    let each = took / u32::try_from(CYCLES / TASKS)?;
    assert!(each < LIMIT / 2, "{each:?} for each cycle");
    // A task for each question that the bad node may still answer, not one for each that was ever asked.
    assert!(most_tasks < CYCLES, "{most_tasks} tasks at a time");
    nothing_is_left(&fleet, tasks, took).await
}

fn alive() -> usize {
    Handle::current().metrics().num_alive_tasks()
}

/// The most tasks that there were at a time.
async fn cycles(locks: &Locks) -> cerrojo::Result<usize> {
    let mut all = tokio::task::JoinSet::new();
    for task in 0..TASKS {
        all.spawn(cycles_of(locks.clone(), format!("n{task}")));
    }
    let of_each: cerrojo::Result<Vec<_>> = all.join_all().await.into_iter().collect();
    Ok(of_each?.into_iter().max().unwrap_or_default())
}

async fn cycles_of(locks: Locks, name: String) -> cerrojo::Result<usize> {
    let mut most = 0;
    for _ in 0..CYCLES / TASKS {
        locks.acquire(name.as_str()).ttl(ttl(30_000)).wait(LONG).await?.release().await?;
        most = most.max(alive());
        // All together last for several limits, so that what piles up is told from what is under way.
        clock::sleep(millis(16)).await;
    }
    Ok(most)
}

/// One connection for each node, and no task but those that keep them.
async fn nothing_is_left(fleet: &Fleet, tasks: usize, took: Duration) -> Outcome {
    eventually("as many tasks as before", || Ok(alive() <= tasks)).await?;
    for node in &fleet.nodes[..4] {
        let counts = node.proxy.counts()?;
        assert_eq!(counts.connections_open, 1, "{counts:?}");
    }
    let bad = &fleet.nodes[4];
    let counts = bad.proxy.counts()?;
    // One that is of no use is replaced, at most once in the time that a call is given.
    let replaced = took.as_millis() / LIMIT.as_millis() + 10;
    assert!(u128::from(counts.connections_seen) <= replaced, "{counts:?} in {took:?}");
    // Those that were given up are seen to have gone once the node, or the way to it, is well.
    bad.server.thaw()?;
    bad.proxy.heal()?;
    eventually("one connection", || Ok(bad.proxy.counts()?.connections_open <= 1)).await
}

/// Without having to be told, and also to the leases that are held.
async fn comes_back() -> Outcome {
    let (fleet, locks) = warm().await?;
    fleet.nodes[4].server.freeze()?;
    let held = locks.acquire("held").ttl(ttl(3_000)).wait(LONG).await?;
    goes_on(&held).await?;
    fleet.nodes[4].server.thaw()?;
    fleet.held_everywhere("held", &held).await?;
    fleet.nodes[0].go_down()?;
    fleet.nodes[1].go_down()?;
    goes_on(&held).await?;
    held.release().await?;
    locks.acquire("a").wait(LONG).await?.release().await?;
    Ok(())
}
