//! Nodes that lose what they have granted, with no grace for them: what a holder keeps, and what it is told.

use cerrojo::{ApproximateGuard, ErrorKind, Instant, LeaseState, backend::redlock::Status, clock};
use libtest_mimic::{Failed, Trial};

use crate::site::{
    Fleet, LONG, Locks, Node, Outcome, connect, eventually, goes_on, is_lost, kind, millis,
    refused, trial, ttl, works,
};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("nodes_restarted_empty_one_after_another_lose_nothing", one_after_another),
        trial("two_of_three_restarted_empty_at_once_lose_the_lock", two_at_once),
        trial("a_holder_that_has_renewed_is_on_all_nodes_again", decay_after_renewal),
        trial("a_holder_whose_quorum_decayed_is_told_at_the_next_renewal", decay_before_renewal),
        trial("a_lock_that_was_gone_everywhere_is_lost_for_good", gone_for_good),
        trial("a_majority_that_is_lost_is_not_made_whole", never_whole),
        trial("a_renewal_that_fails_releases_nothing", failed_renewal),
        trial("release_says_released_not_held_or_unknown", releases),
        trial("an_old_guard_never_releases_a_newer_one", old_guard),
    ]
}

/// Each of them twice, so that no node has it from the beginning.
async fn one_after_another() -> Outcome {
    let fleet = Fleet::start(3)?;
    let (locks, others) = (fleet.locks().await?, fleet.locks().await?);
    let guard = locks.acquire("a").ttl(ttl(3_000)).await?;
    for _ in 0..2 {
        for node in &fleet.nodes {
            fleet.held_everywhere("a", &guard).await?;
            node.server.restart_empty()?;
        }
    }
    fleet.held_everywhere("a", &guard).await?;
    goes_on(&guard).await?;
    assert_eq!(guard.state(), LeaseState::Held);
    assert_eq!(kind(others.try_acquire("a").await), Some(ErrorKind::Contended));
    guard.release().await?;
    fleet.held_nowhere("a").await
}

async fn two_at_once() -> Outcome {
    let fleet = Fleet::start(3)?;
    let locks = fleet.locks().await?;
    let guard = locks.acquire("a").ttl(ttl(6_000)).await?;
    fleet.nodes[0].server.restart_empty()?;
    fleet.nodes[1].server.restart_empty()?;
    is_lost(&guard).await?;
    assert_eq!(kind(guard.release().await), Some(ErrorKind::Lost));
    works(&locks, "a").await
}

/// A has the lock at three of five, and B has met it; then the other two are there again.
async fn three_of_five(ttl_ms: u64) -> Result<(Fleet, Locks, ApproximateGuard), Failed> {
    let fleet = Fleet::start(5)?;
    let (locks, others) = (fleet.locks().await?, fleet.locks().await?);
    fleet.nodes[3..].iter().try_for_each(Node::go_down)?;
    let guard = locks.acquire("a").ttl(ttl(ttl_ms)).await?;
    assert_eq!(fleet.held_at("a", guard.owner()), 3);
    let refusal = refused(&others, "a", Status::Conflicted).await?;
    assert_eq!(refusal.conflicted, 3, "{refusal}");
    fleet.nodes[3..].iter().try_for_each(|node| node.proxy.accept())?;
    Ok((fleet, others, guard))
}

async fn decay_after_renewal() -> Outcome {
    let (fleet, others, guard) = three_of_five(3_000).await?;
    fleet.held_everywhere("a", &guard).await?;
    fleet.nodes[2].server.command(&["FLUSHALL"])?;
    // Those two are dialed again after a rest.
    while refused(&others, "a", Status::Conflicted).await?.conflicted < 3 {
        clock::sleep(millis(50)).await;
    }
    goes_on(&guard).await?;
    Ok(guard.release().await?)
}

/// There is no way for anybody to see it earlier; with a grace a restarted node does not take part in it.
async fn decay_before_renewal() -> Outcome {
    let (fleet, others, guard) = three_of_five(15_000).await?;
    fleet.nodes[2].server.command(&["FLUSHALL"])?;
    let until = guard.valid_until().ok_or("lost at once")?;
    let next = others.acquire("a").ttl(ttl(30_000)).wait(millis(3_000)).await?;
    assert_eq!(guard.renewals(), 0, "the trial was too slow");
    is_lost(&guard).await?;
    assert!(Instant::now() < until, "not told by a renewal");
    assert_eq!(kind(guard.release().await), Some(ErrorKind::Lost));
    Ok(next.release().await?)
}

/// A was deleted everywhere; B has come and gone.
async fn gone_for_good() -> Outcome {
    let fleet = Fleet::start(3)?;
    let (locks, others) = (fleet.locks().await?, fleet.locks().await?);
    let guard = locks.acquire("a").ttl(ttl(6_000)).await?;
    fleet.held_everywhere("a", &guard).await?;
    for node in &fleet.nodes {
        node.server.command(&["DEL", "cerrojo:{a}"])?;
    }
    others.acquire("a").wait(LONG).await?.release().await?;
    is_lost(&guard).await?;
    assert_eq!((fleet.held_at("a", guard.owner()), guard.renewals()), (0, 0));
    assert_eq!(kind(guard.release().await), Some(ErrorKind::Lost));
    Ok(())
}

async fn never_whole() -> Outcome {
    let fleet = Fleet::start(5)?;
    let locks = fleet.locks().await?;
    let guard = locks.acquire("a").ttl(ttl(6_000)).await?;
    fleet.held_everywhere("a", &guard).await?;
    for node in &fleet.nodes[..3] {
        node.server.command(&["FLUSHALL"])?;
    }
    is_lost(&guard).await?;
    assert_eq!(fleet.held_at("a", guard.owner()), 2);
    drop(guard);
    fleet.held_nowhere("a").await
}

async fn failed_renewal() -> Outcome {
    let fleet = Fleet::start(3)?;
    let locks = fleet.locks().await?;
    let guard = locks.acquire("a").ttl(ttl(9_000)).await?;
    fleet.held_everywhere("a", &guard).await?;
    fleet.nodes[..2].iter().try_for_each(Node::go_down)?;
    eventually("at risk", || Ok(guard.state() == LeaseState::AtRisk)).await?;
    assert_eq!(fleet.held_at("a", guard.owner()), 3);
    fleet.nodes[..2].iter().try_for_each(|node| node.proxy.accept())?;
    goes_on(&guard).await?;
    assert_eq!(guard.state(), LeaseState::Held);
    Ok(guard.release().await?)
}

async fn releases() -> Outcome {
    let fleet = Fleet::start(3)?;
    let locks = connect(&fleet.url("node_limit_ms=500")).await?;
    let released = locks.acquire("a").await?;
    let gone = locks.acquire("b").await?;
    let unknown = locks.acquire("c").await?;
    fleet.held_everywhere("b", &gone).await?;
    fleet.held_everywhere("c", &unknown).await?;
    for node in &fleet.nodes {
        node.server.command(&["DEL", "cerrojo:{b}"])?;
    }
    fleet.nodes[0].go_down()?;
    assert_eq!(kind(released.release().await), None);
    assert_eq!(kind(gone.release().await), Some(ErrorKind::Lost));
    fleet.nodes[1].go_down()?;
    assert_eq!(kind(unknown.release().await), Some(ErrorKind::Indeterminate));
    // It is asked on.
    fleet.nodes[..2].iter().try_for_each(|node| node.proxy.accept())?;
    fleet.held_nowhere("c").await
}

async fn old_guard() -> Outcome {
    let fleet = Fleet::start(3)?;
    let (locks, others) = (fleet.locks().await?, fleet.locks().await?);
    let old = locks.acquire("a").ttl(ttl(60_000)).await?;
    fleet.held_everywhere("a", &old).await?;
    for node in &fleet.nodes {
        node.server.command(&["DEL", "cerrojo:{a}"])?;
    }
    let new = others.acquire("a").ttl(ttl(3_000)).await?;
    let (name, owner) = (old.name().clone(), old.owner());
    assert_eq!(kind(old.release().await), Some(ErrorKind::Lost));
    assert_eq!(kind(locks.release(&name, owner).await), Some(ErrorKind::Lost));
    goes_on(&new).await?;
    fleet.held_everywhere("a", &new).await?;
    Ok(new.release().await?)
}
