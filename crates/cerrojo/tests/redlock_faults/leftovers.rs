//! What a round that came to nothing, or came late, leaves behind: nothing.

use cerrojo::{ErrorKind, OwnerId, backend::redlock::Status, clock};
use cerrojo_testbed::Direction;
use libtest_mimic::Trial;

use crate::site::{
    Fleet, LONG, Node, Outcome, check_error, connect, eventually, kind, millis, refused, trial, ttl,
};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("a_refused_acquisition_leaves_nothing", contended),
        trial("refused_acquisitions_of_a_crowd_leave_nothing", crowd),
        trial("a_late_grant_of_a_failed_round_is_given_back", late_grant_of_a_failed_round),
        trial("a_late_grant_of_a_lock_that_was_released_is_given_back", late_grant_of_a_released),
        trial("a_grant_by_a_connection_that_comes_late_is_given_back", late_connection),
        trial("a_grant_by_a_script_that_is_sent_again_is_given_back", late_script),
        trial("connection_refused_is_told_within_the_deadline", refused_in_time),
        trial("a_waiter_that_is_cancelled_leaves_nothing", cancelled),
    ]
}

/// The loser had two of five before it was refused.
async fn contended() -> Outcome {
    let fleet = Fleet::start(5)?;
    let (locks, others) = (fleet.locks().await?, fleet.locks().await?);
    fleet.nodes[3..].iter().try_for_each(Node::go_down)?;
    let guard = locks.acquire("a").ttl(ttl(60_000)).await?;
    fleet.nodes[3..].iter().try_for_each(|node| node.proxy.accept())?;
    // So that two have granted before three have refused.
    for node in &fleet.nodes[..3] {
        node.proxy.delay(Direction::ToClient, millis(200))?;
    }
    loop {
        // Those two are dialed again after a rest.
        let summary = refused(&others, "a", Status::Conflicted).await?;
        assert_eq!(summary.conflicted, 3, "{summary}");
        if summary.acquired == 2 {
            break;
        }
        clock::sleep(millis(50)).await;
    }
    eventually("three keys", || Ok(fleet.keys("a") == 3)).await?;
    assert_eq!(fleet.held_at("a", guard.owner()), 3);
    guard.release().await?;
    fleet.held_nowhere("a").await
}

/// All who were refused are told so when none of theirs is left, at the nodes that voted.
async fn crowd() -> Outcome {
    let fleet = Fleet::start(3)?;
    for _ in 0..20 {
        let mut all = tokio::task::JoinSet::new();
        for _ in 0..4 {
            let locks = fleet.locks().await?;
            all.spawn(async move { locks.try_acquire("a").ttl(ttl(60_000)).await });
        }
        let answers = all.join_all().await;
        let held: Vec<_> = answers.into_iter().flatten().collect();
        assert!(held.len() <= 1, "{held:?}");
        for guard in held {
            guard.release().await?;
        }
        fleet.held_nowhere("a").await?;
    }
    Ok(())
}

/// Node 2 gets the request when its time is over.
async fn late_grant_of_a_failed_round() -> Outcome {
    let fleet = Fleet::start(3)?;
    let locks = connect(&fleet.url("node_limit_ms=300")).await?;
    locks.acquire("b").wait(LONG).await?.release().await?;
    fleet.held_nowhere("b").await?;
    fleet.nodes[1].go_down()?;
    fleet.nodes[2].proxy.delay(Direction::ToServer, millis(700))?;
    let before = fleet.nodes[2].proxy.counts()?.to_server;
    let summary = refused(&locks, "a", Status::NoQuorum).await?;
    assert_eq!((summary.acquired, summary.failures.len()), (1, 2), "{summary}");
    // The request and the release behind it.
    let arrived = fleet.nodes[2].proxy.await_counts(LONG, move |now| {
        now.to_server.passed > before.passed && now.to_server.passed == now.to_server.arrived
    })?;
    assert!(arrived.to_server.passed > before.passed);
    fleet.held_nowhere("a").await?;
    stays_free(&fleet).await
}

/// What could still come has come by then; the TTL ends later than that is waited for.
async fn stays_free(fleet: &Fleet) -> Outcome {
    clock::sleep(millis(1_500)).await;
    fleet.held_nowhere("a").await
}

/// The majority had granted it before, and it was released before node 2 got the request.
async fn late_grant_of_a_released() -> Outcome {
    let fleet = Fleet::start(3)?;
    let locks = connect(&fleet.url("node_limit_ms=300")).await?;
    locks.acquire("b").wait(LONG).await?.release().await?;
    fleet.held_nowhere("b").await?;
    fleet.nodes[2].proxy.delay(Direction::ToServer, millis(700))?;
    locks.acquire("a").ttl(ttl(60_000)).wait(LONG).await?.release().await?;
    fleet.nodes[2].proxy.delay(Direction::ToServer, millis(0))?;
    stays_free(&fleet).await
}

/// Node 2 is being dialed while the others grant and release.
async fn late_connection() -> Outcome {
    let fleet = Fleet::start(3)?;
    let locks = connect(&fleet.url("node_limit_ms=2000")).await?;
    for _ in 0..10 {
        fleet.nodes[2].proxy.cut()?;
        fleet.nodes[2].proxy.delay(Direction::ToClient, millis(50))?;
        clock::sleep(millis(20)).await;
        locks.acquire("a").ttl(ttl(60_000)).wait(LONG).await?.release().await?;
        fleet.nodes[2].proxy.delay(Direction::ToClient, millis(0))?;
        clock::sleep(millis(400)).await;
        fleet.held_nowhere("a").await?;
    }
    Ok(())
}

/// Node 2 does not know the script of acquire, and says so when the others have granted and released already.
async fn late_script() -> Outcome {
    let fleet = Fleet::start(3)?;
    let locks = fleet.locks().await?;
    locks.acquire("b").wait(LONG).await?.release().await?;
    fleet.held_nowhere("b").await?;
    fleet.nodes[2].server.command(&["SCRIPT", "FLUSH"])?;
    let unheld = locks.release(&"other".parse()?, OwnerId::random()).await;
    assert_eq!(kind(unheld), Some(ErrorKind::Lost));
    clock::sleep(millis(100)).await;
    fleet.nodes[2].proxy.delay(Direction::ToClient, millis(200))?;
    locks.acquire("a").ttl(ttl(60_000)).wait(LONG).await?.release().await?;
    fleet.nodes[2].proxy.delay(Direction::ToClient, millis(0))?;
    stays_free(&fleet).await
}

async fn refused_in_time() -> Outcome {
    let fleet = Fleet::start(3)?;
    let locks = fleet.locks().await?;
    fleet.nodes.iter().try_for_each(Node::go_down)?;
    // The first to ask may find that its connection has just been cut.
    refused(&locks, "a", Status::NoQuorum).await?;
    for wait in [0, 500, 1_500] {
        let start = cerrojo::Instant::now();
        let error = locks.acquire("a").wait(millis(wait)).await.err().ok_or("granted")?;
        let took = cerrojo::Instant::now().since(start);
        check_error(&error, &[ErrorKind::Unavailable], &["no quorum", "cannot connect"])?;
        // By one call, and what is given back after it.
        assert!(millis(wait) <= took && took < millis(wait + 4_000), "{took:?}");
    }
    Ok(())
}

async fn cancelled() -> Outcome {
    let fleet = Fleet::start(3)?;
    let (locks, others) = (fleet.locks().await?, fleet.locks().await?);
    let guard = locks.acquire("a").ttl(ttl(60_000)).await?;
    for _ in 0..5 {
        let waiting = others.acquire("a").wait(LONG).into_future();
        drop(clock::within(millis(100), waiting).await);
    }
    let lines = || fleet.nodes.iter().filter(|node| node.has_key("cerrojo:{a}:line").unwrap());
    eventually("no line", || Ok(lines().count() == 0)).await?;
    guard.release().await?;
    fleet.held_nowhere("a").await?;
    assert_eq!(kind(others.try_acquire("a").await.map(drop)), None);
    Ok(())
}
