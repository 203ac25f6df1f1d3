//! A cluster that loses a node.

use cerrojo::{ApproximateGuard, ErrorKind, Instant, LeaseState, clock};
use cerrojo_testbed::{RedisCluster, RedisServer};
use libtest_mimic::Trial;

use crate::site::{
    Outcome, check_error, connect, eventually, is_lost, kind, millis, trial, ttl, works,
};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("a_killed_node_of_a_cluster_loses_its_locks_and_no_others", killed_node),
        trial("braces_and_a_foreign_format_are_refused_on_a_cluster", braces),
    ]
}

fn url(cluster: &RedisCluster, options: &str) -> String {
    let addresses: Vec<_> = cluster.nodes().iter().map(RedisServer::address).collect();
    format!("redis+cluster://{}?{options}", addresses.join(","))
}

/// A name whose node is to be killed, and those of other nodes.
fn names(cluster: &RedisCluster) -> std::io::Result<(String, Vec<String>)> {
    let port = |name: &str| cluster.node_of(&format!("cerrojo:{{{name}}}")).map(RedisServer::port);
    let first = "a".to_owned();
    let doomed = port(&first)?;
    let mut others = Vec::new();
    for name in ('b'..='z').map(String::from) {
        if port(&name)? != doomed {
            others.push(name);
        }
    }
    Ok((first, others))
}

async fn killed_node() -> Outcome {
    let cluster = RedisCluster::start()?;
    let locks = connect(&url(&cluster, "call_limit_ms=1000")).await?;
    let (doomed, others) = names(&cluster)?;
    let lost = locks.acquire(doomed.as_str()).ttl(ttl(3_000)).await?;
    let mut held = Vec::new();
    for name in &others {
        held.push(locks.acquire(name.as_str()).ttl(ttl(6_000)).await?);
    }
    let node = cluster.node_of(&format!("cerrojo:{{{doomed}}}"))?;
    node.kill()?;
    let until = lost.valid_until().ok_or("lost at once")?;
    is_lost(&lost).await?;
    let late = Instant::now().since(until);
    assert!(late < millis(2_000), "{late:?} after the end of validity");
    let renewed: Vec<_> = held.iter().map(ApproximateGuard::renewals).collect();
    eventually("renewals of all others", || {
        Ok(held.iter().zip(&renewed).all(|(guard, before)| guard.renewals() >= before + 2))
    })
    .await?;
    assert!(held.iter().all(|guard| guard.state() != LeaseState::Lost));
    let refused =
        clock::within(millis(8_000), locks.try_acquire(doomed.as_str()).into_future()).await?;
    let refused = kind(refused);
    assert!(
        matches!(refused, Some(ErrorKind::Unavailable | ErrorKind::Indeterminate)),
        "{refused:?}"
    );
    for guard in held {
        guard.release().await?;
    }
    works(&locks, &others[0]).await?;
    node.restart()?;
    works(&locks, &doomed).await
}

async fn braces() -> Outcome {
    let cluster = RedisCluster::start()?;
    let foreign = connect(&url(&cluster, "format=redis-py")).await?;
    for name in ["a{b}", "{", "}"] {
        let refused = foreign.try_acquire(name).await.unwrap_err();
        check_error(&refused, &[ErrorKind::Invalid], &["braces", name])?;
    }
    works(&foreign, "plain").await?;
    let ours = connect(&url(&cluster, "")).await?;
    for name in ["a{b}", "{", "}", "{}", "plain"] {
        works(&ours, name).await?;
    }
    Ok(())
}
