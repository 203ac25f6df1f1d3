//! What users of RedLock.NET rely on, and what it keeps of that: here it is kept.

use cerrojo::{ApproximateGuard, ErrorKind, Instant, LeaseState, clock};
use cerrojo_testbed::RedisServer;
use libtest_mimic::{Failed, Trial};

use crate::site::{
    Fleet, LONG, Locks, Node, Outcome, connect, eventually, goes_on, is_lost, kind, millis, trial,
    ttl,
};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("two_who_wait_get_their_turn_one_after_the_other", in_turn),
        trial("a_lock_is_held_for_ten_ttls_and_the_guard_counts_its_renewals", ten_ttls),
        trial("a_release_during_a_renewal_leaves_nothing", renew_and_release),
        trial("of_three_who_race_exactly_one_wins", race),
        trial("cancelling_a_wait_ends_it_at_once_and_the_next_enters", cancel),
        trial("a_holder_that_is_gone_is_followed_at_the_end_of_its_ttl", crash),
        trial("a_deadline_is_not_overrun", deadline),
        trial("password_database_and_key_format_are_those_of_the_url", settings),
    ]
}

/// Each holds for two TTLs.
async fn in_turn() -> Outcome {
    let fleet = Fleet::start(3)?;
    let mut all = tokio::task::JoinSet::new();
    for _ in 0..2 {
        all.spawn(stay(fleet.locks().await?));
    }
    let mut stays = all.join_all().await.into_iter().collect::<Result<Vec<_>, _>>()?;
    stays.sort_unstable();
    assert!(stays[0].1 <= stays[1].0, "{stays:?}");
    Ok(())
}

/// From when to when it had the lock.
async fn stay(locks: Locks) -> cerrojo::Result<(Instant, Instant)> {
    let guard = locks.acquire("a").ttl(ttl(1_000)).wait(LONG).await?;
    let entered = Instant::now();
    clock::sleep(millis(2_000)).await;
    let left = Instant::now();
    guard.release().await?;
    Ok((entered, left))
}

async fn ten_ttls() -> Outcome {
    let fleet = Fleet::start(3)?;
    let (locks, others) = (fleet.locks().await?, fleet.locks().await?);
    let guard = locks.acquire("a").ttl(ttl(1_000)).await?;
    let end = Instant::now() + millis(10_000);
    while Instant::now() < end {
        let refused = kind(others.acquire("a").wait(millis(500)).await);
        assert_eq!(refused, Some(ErrorKind::Contended));
    }
    assert_eq!(guard.state(), LeaseState::Held);
    assert!(guard.renewals() >= 15, "{} renewals", guard.renewals());
    guard.release().await?;
    Ok(others.acquire("a").await?.release().await?)
}

/// At any moment of it: nothing is given back to the nodes afterwards.
async fn renew_and_release() -> Outcome {
    let fleet = Fleet::start(3)?;
    let locks = fleet.locks().await?;
    for round in 0..40 {
        let guard = locks.acquire("a").ttl(ttl(600)).wait(LONG).await?;
        // One node lacks it, so that a renewal gives it back.
        fleet.nodes[round % 3].server.command(&["DEL", "cerrojo:{a}"])?;
        let due = guard.valid_until().ok_or("lost at once")? - millis(430);
        clock::sleep_until(due + millis(u64::try_from(round)?)).await;
        guard.release().await?;
        fleet.held_nowhere("a").await?;
    }
    Ok(())
}

/// By connections of their own. They may also split the votes until all give up; then they ask again.
async fn race() -> Outcome {
    let fleet = Fleet::start(3)?;
    let all = [fleet.locks().await?, fleet.locks().await?, fleet.locks().await?];
    for round in 0..50 {
        let name = format!("a{round}");
        let mut held = Vec::new();
        while held.is_empty() {
            held = at_once(&all, &name).await?;
        }
        assert_eq!(held.len(), 1, "in round {round}");
    }
    Ok(())
}

/// Those who got it. It is given back when all have been answered.
async fn at_once(all: &[Locks], name: &str) -> Result<Vec<ApproximateGuard>, Failed> {
    let mut asking = tokio::task::JoinSet::new();
    for locks in all {
        let (locks, name) = (locks.clone(), name.to_owned());
        asking.spawn(async move { locks.acquire(name.as_str()).wait(millis(100)).await });
    }
    let mut held = Vec::new();
    for answer in asking.join_all().await {
        match answer {
            Ok(guard) => held.push(guard),
            Err(error) if error.kind() == ErrorKind::Contended => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(held)
}

/// The place is given up too: the next enters as soon as the lock is free.
async fn cancel() -> Outcome {
    let fleet = Fleet::start(3)?;
    let (locks, others) = (fleet.locks().await?, fleet.locks().await?);
    let guard = locks.acquire("a").ttl(ttl(60_000)).await?;
    let waiting = tokio::spawn({
        let others = others.clone();
        async move { others.acquire("a").await }
    });
    let has_line = || Ok(fleet.nodes.iter().any(|node| node.has_key("cerrojo:{a}:line").unwrap()));
    eventually("a waiter", has_line).await?;
    waiting.abort();
    assert!(waiting.await.is_err());
    let next = tokio::spawn(async move { others.acquire("a").wait(LONG).await });
    eventually("a waiter", has_line).await?;
    guard.release().await?;
    Ok(next.await??.release().await?)
}

/// A runtime that ends takes its keepers with it.
async fn crash() -> Outcome {
    let fleet = Fleet::start(3)?;
    let locks = fleet.locks().await?;
    let url = fleet.url("");
    let guard = std::thread::spawn(move || {
        let runtime = crate::site::runtime();
        let guard = runtime
            .block_on(async { connect(&url).await?.acquire("a").ttl(ttl(3_000)).wait(LONG).await });
        runtime.shutdown_background();
        guard
    });
    let guard = guard.join().unwrap()?;
    let next = locks.acquire("a").ttl(ttl(3_000)).wait(LONG).await?;
    is_lost(&guard).await?;
    goes_on(&next).await?;
    Ok(next.release().await?)
}

/// By one call at most.
async fn deadline() -> Outcome {
    let fleet = Fleet::start(3)?;
    let (locks, others) = (fleet.locks().await?, fleet.locks().await?);
    let _guard = locks.acquire("a").ttl(ttl(60_000)).await?;
    for wait in [1, 50, 700] {
        let start = Instant::now();
        let refused = kind(others.acquire("a").wait(millis(wait)).await);
        let took = Instant::now().since(start);
        assert_eq!(refused, Some(ErrorKind::Contended));
        assert!(millis(wait) <= took && took < millis(wait + 2_000), "{took:?}");
    }
    Ok(())
}

async fn settings() -> Outcome {
    let fleet = Fleet::of(3, &RedisServer::builder().password("p@ss"))?;
    let hosts: Vec<_> = fleet.nodes.iter().map(|node| node.proxy.address()).collect();
    let url = format!("redlock://:p%40ss@{}/7?restart_grace_ms=0", hosts.join(","));
    let locks = connect(&format!("{url}&node_limit_ms=1000&format=redlock.net")).await?;
    let guard = locks.acquire("orders/7").wait(LONG).await?;
    let value = |node: &Node| {
        let mut client = node.server.client()?;
        client.command(&["SELECT", "7"])?;
        client.command(&["GET", "redlock:orders/7"]).map(|value| value.to_string())
    };
    let hex = guard.owner().to_hex();
    let guid = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-");
    for node in &fleet.nodes {
        eventually("the GUID", || Ok(value(node)? == guid)).await?;
        assert_eq!(node.server.command(&["DBSIZE"])?, "0", "in database 0");
    }
    guard.release().await?;
    for node in &fleet.nodes {
        eventually("no key", || Ok(value(node)? == "nil")).await?;
    }
    Ok(())
}
