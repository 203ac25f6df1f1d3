//! Delayed restart: a node that may have forgotten what it granted has no vote until all of that has ended.

use cerrojo::{
    ApproximateGuard, ErrorKind, Instant, LeaseState,
    backend::redlock::{Status, Summary},
};
use cerrojo_testbed::{RedisBuilder, RedisServer, Sentinels};
use libtest_mimic::{Failed, Trial};

use crate::site::{
    Fleet, LONG, Locks, Node, Outcome, connect, eventually, goes_on, kind, millis, refused, trial,
    ttl,
};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("without_a_grace_a_restarted_node_gives_a_second_holder_the_lock", two_holders),
        trial("a_restarted_node_has_no_vote_for_who_saw_it", seen_restart),
        trial("a_restarted_node_has_no_vote_for_who_has_just_come", unseen_restart),
        trial("a_node_that_syncs_every_write_votes_at_once", synced),
        trial("a_promoted_replica_has_no_vote_even_when_first_seen", promoted),
        trial("a_promotion_under_a_running_client_is_seen", promoted_meanwhile),
        trial("a_replica_that_sentinels_promote_has_no_vote", failed_over),
        trial("a_node_in_quarantine_takes_renewals_and_put_backs", put_back),
        trial("a_waiter_enters_a_cold_deployment_once_the_grace_has_passed", cold),
        trial("a_waiter_does_not_sleep_through_the_return_of_another_node", sleeper),
    ]
}

/// Longer than a trial takes.
const GRACE: &str = "restart_grace_ms=60000";
/// By so much the clocks of the nodes are put forward: they look as old as that.
const AGE_NANOS: i64 = 3_600_000_000_000;

/// Three nodes that have been up for an hour, by their own clocks.
async fn aged(builder: RedisBuilder) -> Result<Fleet, Failed> {
    let fleet = Fleet::of(3, &builder.clock_skew())?;
    for node in &fleet.nodes {
        node.server.set_clock_nanos(AGE_NANOS)?;
        let uptime = || node.server.info("uptime_in_seconds");
        eventually("an hour", || Ok(uptime()?.parse::<u64>().is_ok_and(|secs| secs > 3_000)))
            .await?;
    }
    Ok(fleet)
}

/// A has the lock at nodes 0 and 1; node 1 has forgotten it, and node 2 is there again.
async fn forgotten(fleet: &Fleet, options: &str) -> Result<(ApproximateGuard, Locks), Failed> {
    let (locks, others) =
        (connect(&fleet.url(options)).await?, connect(&fleet.url(options)).await?);
    fleet.nodes[2].go_down()?;
    let guard = locks.acquire("a").ttl(ttl(60_000)).wait(LONG).await?;
    fleet.nodes[1].server.restart_empty()?;
    fleet.nodes[2].proxy.accept()?;
    Ok((guard, others))
}

/// Node 1 abstains, and says until when.
fn check_quarantine(summary: &Summary, node: &Node) -> Outcome {
    let place = node.proxy.address();
    let failure = summary.failures.iter().find(|failure| failure.node == place);
    let failure = failure.ok_or_else(|| format!("{place} is missing in {summary}"))?;
    let until = failure.quarantined_until.ok_or_else(|| format!("no end in {failure:?}"))?;
    let left = until.remaining();
    assert!(millis(20_000) < left && left <= millis(60_000), "{left:?}");
    assert!(failure.why.contains("restarted"), "{failure:?}");
    Ok(())
}

async fn two_holders() -> Outcome {
    let fleet = aged(RedisServer::builder()).await?;
    let (guard, others) = forgotten(&fleet, "restart_grace_ms=0").await?;
    let second = others.acquire("a").wait(LONG).await?;
    assert_eq!((guard.state(), second.state()), (LeaseState::Held, LeaseState::Held));
    Ok(())
}

async fn seen_restart() -> Outcome {
    let fleet = aged(RedisServer::builder()).await?;
    let (guard, others) = forgotten(&fleet, GRACE).await?;
    // It has to count by its own clock: this one says an hour again.
    let error = others.acquire("a").wait(millis(2_000)).await.err().ok_or("two holders")?;
    assert_eq!(error.kind(), ErrorKind::Contended);
    let summary = crate::site::summary(&error)?;
    assert_eq!((summary.acquired, summary.conflicted), (1, 1), "{summary}");
    check_quarantine(&summary, &fleet.nodes[1])?;
    assert_eq!(guard.state(), LeaseState::Held);
    assert_eq!(fleet.held_at("a", guard.owner()), 1);
    Ok(())
}

async fn unseen_restart() -> Outcome {
    let fleet = aged(RedisServer::builder()).await?;
    let (guard, _) = forgotten(&fleet, GRACE).await?;
    let newcomer = connect(&fleet.url(GRACE)).await?;
    let summary = refused(&newcomer, "a", Status::Conflicted).await?;
    assert_eq!((summary.acquired, summary.conflicted), (1, 1), "{summary}");
    check_quarantine(&summary, &fleet.nodes[1])?;
    assert_eq!(guard.state(), LeaseState::Held);
    Ok(())
}

/// From its start, and after a restart, of which it has forgotten nothing.
async fn synced() -> Outcome {
    let builder =
        RedisServer::builder().option("appendonly", "yes").option("appendfsync", "always");
    let fleet = Fleet::of(3, &builder)?;
    let (locks, others) = (connect(&fleet.url(GRACE)).await?, connect(&fleet.url(GRACE)).await?);
    let guard = locks.try_acquire("a").ttl(ttl(30_000)).await?;
    fleet.held_everywhere("a", &guard).await?;
    for node in &fleet.nodes {
        node.server.kill()?;
        node.server.restart()?;
    }
    let refused = kind(others.acquire("a").wait(millis(2_000)).await);
    assert_eq!(refused, Some(ErrorKind::Contended));
    assert_eq!(fleet.held_at("a", guard.owner()), 3);
    guard.release().await?;
    Ok(others.acquire("a").wait(LONG).await?.release().await?)
}

/// Node 1 gets another history; what it writes from now on, and what it had of the other one, is on its disk at once.
fn promote(node: &Node) -> Outcome {
    let master = RedisServer::start()?;
    node.server.replica_of(&master)?;
    Ok(node.server.promote()?)
}

/// Who syncs may still lack what its master had not passed on.
async fn promoted() -> Outcome {
    for appendfsync in ["everysec", "always"] {
        let builder = RedisServer::builder().option("appendonly", "yes");
        let fleet = aged(builder.option("appendfsync", appendfsync)).await?;
        promote(&fleet.nodes[1])?;
        let locks = connect(&fleet.url(GRACE)).await?;
        abstains(&fleet, &locks).await?;
    }
    Ok(())
}

/// With one node down, node 1 would make the majority.
async fn abstains(fleet: &Fleet, locks: &Locks) -> Outcome {
    fleet.nodes[2].go_down()?;
    let summary = refused(locks, "a", Status::NoQuorum).await?;
    assert_eq!((summary.acquired, summary.failures.len()), (1, 2), "{summary}");
    check_quarantine(&summary, &fleet.nodes[1])
}

/// It keeps its run id.
async fn promoted_meanwhile() -> Outcome {
    let builder = RedisServer::builder().option("appendonly", "yes");
    let fleet = aged(builder.option("appendfsync", "always")).await?;
    let locks = connect(&fleet.url(GRACE)).await?;
    locks.acquire("b").wait(LONG).await?.release().await?;
    let before = fleet.nodes[1].server.info("run_id")?;
    promote(&fleet.nodes[1])?;
    fleet.nodes[1].proxy.cut()?;
    locks.acquire("b").wait(LONG).await?.release().await?;
    assert_eq!(fleet.nodes[1].server.info("run_id")?, before);
    abstains(&fleet, &locks).await
}

/// One node is a master with a replica.
async fn failed_over() -> Outcome {
    let fleet = aged(RedisServer::builder()).await?;
    let group = Sentinels::start()?;
    let hosts: Vec<_> = group.sentinels().iter().map(RedisServer::address).collect();
    let sentinels = format!("redis%2Bsentinel://{}/{}", hosts.join(","), Sentinels::NAME);
    let two = [&fleet.nodes[0], &fleet.nodes[1]].map(|node| node.proxy.address());
    let rest = format!("{GRACE}&node_limit_ms=1000&nodes={sentinels}");
    let locks = connect(&format!("redlock://{}?{rest}", two.join(","))).await?;
    let [master, replica] = group.servers();
    replica.await_sync(master)?;
    let before = Instant::now();
    master.kill()?;
    group.await_failover(&master.address())?;
    fleet.nodes[0].go_down()?;
    // As long as the group is being connected it has no quarantine to tell.
    let error = locks.acquire("a").wait(millis(4_000)).await.err().ok_or("granted")?;
    let summary = crate::site::summary(&error)?;
    let ends: Vec<_> = summary.failures.iter().filter_map(|one| one.quarantined_until).collect();
    assert_eq!((summary.acquired, ends.len()), (1, 1), "{summary}");
    // It counts from the failover, not from when the servers were started.
    assert!(ends[0] > before + millis(60_000), "{summary}");
    Ok(())
}

async fn put_back() -> Outcome {
    let fleet = aged(RedisServer::builder()).await?;
    let locks = connect(&fleet.url(GRACE)).await?;
    let guard = locks.acquire("a").ttl(ttl(3_000)).wait(LONG).await?;
    fleet.held_everywhere("a", &guard).await?;
    fleet.nodes[1].server.restart_empty()?;
    fleet.held_everywhere("a", &guard).await?;
    // Node 1 has a part in the majority of renewals.
    fleet.nodes[2].go_down()?;
    goes_on(&guard).await?;
    assert_eq!(guard.state(), LeaseState::Held);
    let summary = refused(&locks, "b", Status::NoQuorum).await?;
    check_quarantine(&summary, &fleet.nodes[1])?;
    guard.release().await?;
    assert_eq!(fleet.keys("a"), 1, "only the one that is down has it yet");
    Ok(())
}

/// The end of the grace wakes it, and nobody enters before.
async fn cold() -> Outcome {
    let before = Instant::now();
    let fleet = Fleet::start(3)?;
    let locks = connect(&fleet.url("ttl_max_ms=3000&restart_grace_ms=3000")).await?;
    let refusal = locks.try_acquire("a").ttl(ttl(1_000)).await;
    let waiting = locks.acquire("a").ttl(ttl(1_000)).wait(LONG).await?;
    let waited = Instant::now().since(before);
    assert!(waited >= millis(3_000), "{waited:?}");
    // Nobody can be so slow that it had passed by then, unless it had.
    if let Err(error) = refusal {
        assert_eq!(crate::site::summary(&error)?.status, Status::NoQuorum);
    }
    Ok(waiting.release().await?)
}

/// One node is in quarantine for long; another, which is down, is enough for a majority once it is back.
async fn sleeper() -> Outcome {
    let fleet = aged(RedisServer::builder()).await?;
    let locks = connect(&fleet.url(GRACE)).await?;
    fleet.nodes[1].server.restart_empty()?;
    fleet.nodes[1].proxy.cut()?;
    fleet.nodes[2].go_down()?;
    let waiting = tokio::spawn({
        let locks = locks.clone();
        async move { locks.acquire("a").wait(LONG).await }
    });
    refused(&locks, "b", Status::NoQuorum).await?;
    fleet.nodes[2].proxy.accept()?;
    Ok(waiting.await??.release().await?)
}
