//! What a majority is, and what is said when there is none.

use cerrojo::{ErrorKind, backend::redlock::Status};
use cerrojo_testbed::Direction;
use libtest_mimic::Trial;

use crate::site::{
    Fleet, LONG, Locks, Node, Outcome, check_error, connect, goes_on, kind, millis, refused,
    summary, trial, ttl, works,
};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("three_of_five_are_a_majority", three_of_five),
        trial("three_of_six_are_no_quorum", three_of_six),
        trial("with_all_nodes_down_there_is_no_quorum", all_down),
        trial("a_second_holder_conflicts_with_the_first", conflict),
        trial("a_grant_that_took_too_long_is_expired", expired),
        trial("one_nodes_error_does_not_abort_the_round", one_error),
        trial("a_ttl_that_leaves_nothing_is_invalid", short_ttl),
        trial("a_ttl_longer_than_the_longest_is_invalid", long_ttl),
        trial("validity_with_slow_nodes_is_counted_from_before_the_request", slow_validity),
    ]
}

async fn three_of_five() -> Outcome {
    let fleet = Fleet::start(5)?;
    let locks = fleet.locks().await?;
    fleet.nodes[3].server.kill()?;
    fleet.nodes[4].go_down()?;
    let guard = locks.try_acquire("a").ttl(ttl(3_000)).await?;
    goes_on(&guard).await?;
    assert_eq!(fleet.held_at("a", guard.owner()), 3);
    guard.release().await?;
    works(&locks, "a").await
}

/// Also when more than the half have answered, but not granted.
async fn three_of_six() -> Outcome {
    let fleet = Fleet::start(6)?;
    let locks = fleet.locks().await?;
    fleet.nodes[3..].iter().try_for_each(Node::go_down)?;
    let summary = refused(&locks, "a", Status::NoQuorum).await?;
    assert_eq!((summary.acquired, summary.conflicted, summary.failures.len()), (3, 0, 3));
    fleet.held_nowhere("a").await?;
    fleet.nodes[3].proxy.accept()?;
    works(&locks, "a").await
}

/// Each node is named with its reason.
async fn all_down() -> Outcome {
    let fleet = Fleet::start(3)?;
    let locks = fleet.locks().await?;
    fleet.nodes.iter().try_for_each(Node::go_down)?;
    let error = locks.try_acquire("a").await.err().ok_or("granted")?;
    check_error(
        &error,
        &[ErrorKind::Unavailable],
        &["no quorum: acquired 0, conflicted 0, failed 3"],
    )?;
    let summary = summary(&error)?;
    assert_eq!((summary.status, summary.acquired), (Status::NoQuorum, 0));
    for place in fleet.nodes.iter().map(|node| node.proxy.address()) {
        let failure = summary.failures.iter().find(|failure| failure.node == place);
        let failure = failure.ok_or_else(|| format!("{place} is missing in {summary}"))?;
        assert!(failure.why.starts_with(&format!("redis at {place}: ")), "{failure:?}");
        assert_eq!(failure.quarantined_until, None);
    }
    Ok(())
}

async fn conflict() -> Outcome {
    let fleet = Fleet::start(3)?;
    let (locks, others) = (fleet.locks().await?, fleet.locks().await?);
    let guard = locks.acquire("a").await?;
    let error = others.try_acquire("a").await.err().ok_or("granted")?;
    assert_eq!(error.kind(), ErrorKind::Contended);
    let holder = error.holder().ok_or("nobody is named")?;
    assert_eq!(holder.owner, guard.owner().short());
    let summary = summary(&error)?;
    assert_eq!((summary.status, summary.acquired), (Status::Conflicted, 0));
    // Who is refused need not hear all.
    assert!(summary.conflicted >= 2 && summary.failures.is_empty(), "{summary}");
    guard.release().await?;
    Ok(others.acquire("a").await?.release().await?)
}

/// All nodes grant, but the work could no longer be done in what is left: none keeps it.
async fn expired() -> Outcome {
    let fleet = Fleet::start(3)?;
    let locks = connect(&fleet.url("operation_time_ms=29000")).await?;
    works_once(&locks).await?;
    for node in &fleet.nodes {
        node.proxy.delay(Direction::ToClient, millis(800))?;
    }
    let summary = refused(&locks, "a", Status::Expired).await?;
    assert_eq!((summary.conflicted, summary.failures.len()), (0, 0));
    assert!(summary.acquired >= 2, "{summary}");
    fleet.held_nowhere("a").await
}

async fn works_once(locks: &Locks) -> Outcome {
    Ok(locks.acquire("a").ttl(ttl(30_000)).await?.release().await?)
}

/// The key of a lock holds something else, a user may not do it, a node is full: the others decide.
async fn one_error() -> Outcome {
    let fleet = Fleet::start(3)?;
    let locks = fleet.locks().await?;
    fleet.nodes[0].server.command(&["CONFIG", "SET", "maxmemory", "1"])?;
    works(&locks, "a").await?;
    fleet.nodes[1].server.command(&["RPUSH", "cerrojo:{b}", "x"])?;
    let summary = refused(&locks, "b", Status::NoQuorum).await?;
    assert_eq!((summary.acquired, summary.failures.len()), (1, 2));
    let said = summary.to_string();
    assert!(said.contains("WRONGTYPE") && said.contains("OOM"), "{said}");
    fleet.nodes[0].server.command(&["CONFIG", "SET", "maxmemory", "0"])?;
    works(&locks, "b").await
}

async fn short_ttl() -> Outcome {
    let fleet = Fleet::start(3)?;
    let locks = fleet.locks().await?;
    for millis in [10, 15, 22] {
        assert_eq!(kind(locks.acquire("a").ttl(ttl(millis)).await), Some(ErrorKind::Invalid));
    }
    assert_eq!(fleet.keys("a"), 0);
    // Slower than the TTL: no panic, no grant with a validity from nowhere.
    for node in &fleet.nodes {
        node.proxy.delay(Direction::ToClient, millis(100))?;
    }
    for _ in 0..5 {
        let answer = kind(locks.try_acquire("a").ttl(ttl(60)).await);
        assert_eq!(answer, Some(ErrorKind::Unavailable));
    }
    Ok(())
}

async fn long_ttl() -> Outcome {
    let fleet = Fleet::start(1)?;
    let locks = connect(&fleet.url("ttl_max_ms=2000")).await?;
    let error = locks.acquire("a").ttl(ttl(2_001)).await.err().ok_or("granted")?;
    check_error(&error, &[ErrorKind::Invalid], &["2.001s", "ttl_max", "2s"])?;
    Ok(locks.acquire("a").ttl(ttl(2_000)).await?.release().await?)
}

async fn slow_validity() -> Outcome {
    let fleet = Fleet::start(3)?;
    let locks = fleet.locks().await?;
    for node in &fleet.nodes {
        node.proxy.delay(Direction::ToClient, millis(300))?;
    }
    for ttl_ms in [1_500, 3_000, 6_000] {
        let guard = locks.acquire("a").ttl(ttl(ttl_ms)).wait(LONG).await?;
        let left = guard.remaining();
        assert!(left <= millis(ttl_ms - 300), "{left:?} of {ttl_ms} ms");
        guard.release().await?;
    }
    Ok(())
}
