//! Which nodes are taken, and what is said of those that are not.

use std::{
    io::{Read, Write},
    net::TcpListener,
};

use cerrojo::{ErrorKind, Instant, backend::redlock::Redlock};
use cerrojo_testbed::{Direction, RedisCluster, RedisServer};
use libtest_mimic::Trial;

use crate::{
    heard::warnings,
    site::{Fleet, LONG, Locks, Outcome, check_error, millis, trial, works},
};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("the_same_server_by_two_names_is_refused", twins),
        trial("a_node_that_becomes_the_same_server_later_has_no_vote", later_twin),
        trial("a_replica_is_refused", replica),
        trial("a_node_of_a_cluster_is_refused", shard),
        trial("what_is_not_redis_is_refused", not_redis),
        trial("a_wrong_password_is_refused_and_not_shown", wrong_password),
        trial("a_node_that_may_not_say_who_it_is_is_refused", anonymous),
        trial("a_minority_that_is_down_is_no_error", minority_down),
        trial("a_majority_that_is_down_is_told_in_time", majority_down),
        trial("no_nodes_are_refused", nobody),
        Trial::test("an_even_number_of_nodes_is_warned_of", even),
        Trial::test("clocks_a_second_apart_are_warned_of_and_locks_work", clocks_apart),
        Trial::test("clocks_that_agree_are_not_warned_of_however_slow_the_way_is", clocks_together),
    ]
}

const NO_GRACE: &str = "restart_grace_ms=0&node_limit_ms=1000";

/// Connecting to these fails for good, and the message has these words.
async fn refused(hosts: &[String], words: &[&str]) -> Outcome {
    let url = format!("redlock://{}?{NO_GRACE}", hosts.join(","));
    let error = Redlock::connect(&url).await.err().ok_or_else(|| format!("{url} let us in"))?;
    check_error(&error, &[ErrorKind::Invalid], words)
}

/// Two that are well, and this one.
async fn refused_beside_two(third: &str, words: &[&str]) -> Outcome {
    let others = [RedisServer::start()?, RedisServer::start()?];
    let [first, second] = others.each_ref().map(RedisServer::address);
    for hosts in [[&first, &second, third], [third, &first, &second]] {
        let hosts = hosts.map(str::to_owned);
        refused(&hosts, &[words, &[third]].concat()).await?;
    }
    Ok(())
}

async fn twins() -> Outcome {
    let servers = [RedisServer::start()?, RedisServer::start()?];
    let twins =
        [servers[0].address(), servers[1].address(), format!("localhost:{}", servers[1].port())];
    let port = servers[1].port().to_string();
    refused(&twins, &["the same server as", "localhost", &port]).await
}

async fn later_twin() -> Outcome {
    let fleet = Fleet::start(3)?;
    let locks = fleet.locks().await?;
    fleet.nodes[2].proxy.lead_to(fleet.nodes[1].server.port())?;
    fleet.nodes[2].proxy.cut()?;
    fleet.nodes[0].go_down()?;
    let error = locks.acquire("a").wait(millis(1_500)).await.err().ok_or("granted")?;
    assert!(error.to_string().contains("the same server as"), "{error}");
    fleet.nodes[0].proxy.accept()?;
    works(&locks, "a").await
}

async fn replica() -> Outcome {
    let servers = [RedisServer::start()?, RedisServer::start()?];
    servers[1].replica_of(&servers[0])?;
    refused_beside_two(&servers[1].address(), &["replica", "name the master"]).await
}

async fn shard() -> Outcome {
    let cluster = RedisCluster::start()?;
    refused_beside_two(&cluster.nodes()[0].address(), &["a node of a cluster"]).await
}

async fn not_redis() -> Outcome {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?.to_string();
    std::thread::spawn(move || {
        for mut connection in listener.incoming().map_while(Result::ok) {
            drop(connection.read(&mut [0; 1_024]));
            drop(connection.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"));
        }
    });
    refused_beside_two(&address, &["not a Redis server"]).await
}

async fn wrong_password() -> Outcome {
    const SECRET: &str = "hunter2hunter2";
    let servers = [RedisServer::start()?, RedisServer::builder().password("right").start()?];
    let wrong = format!("redis%3A%2F%2F%3A{SECRET}%40{}", servers[1].address());
    let url = format!("redlock://{}?{NO_GRACE}&nodes={wrong}", servers[0].address());
    let error = Redlock::connect(&url).await.err().ok_or("let us in")?;
    check_error(&error, &[ErrorKind::Invalid], &[&servers[1].address(), "password is wrong"])?;
    assert!(!format!("{error} {error:?}").contains(SECRET), "a password is shown");
    refused_beside_two(&servers[1].address(), &["password is wrong"]).await
}

async fn anonymous() -> Outcome {
    let mute = RedisServer::builder().user("default", "on nopass ~* &* +@all -info").start()?;
    refused_beside_two(&mute.address(), &["allowed INFO"]).await
}

/// Stopped, or not there.
async fn minority_down() -> Outcome {
    let fleet = Fleet::start(5)?;
    fleet.nodes[0].server.freeze()?;
    fleet.nodes[4].go_down()?;
    works(&fleet.locks().await?, "a").await
}

async fn majority_down() -> Outcome {
    let fleet = Fleet::start(3)?;
    fleet.nodes[0].server.freeze()?;
    fleet.nodes[1].go_down()?;
    let start = Instant::now();
    let error = Redlock::connect(&fleet.url("call_limit_ms=1000")).await.err().ok_or("let in")?;
    let took = Instant::now().since(start);
    let places = [0, 1].map(|number: usize| fleet.nodes[number].proxy.address());
    check_error(&error, &[ErrorKind::Unavailable], &["no majority", &places[0], &places[1]])?;
    assert!(took < millis(3_000), "{took:?}");
    Ok(())
}

async fn nobody() -> Outcome {
    for builder in [Redlock::builder(Vec::<String>::new()), Redlock::builder([""; 0])] {
        let error = builder.connect().await.err().ok_or("let in")?;
        check_error(&error, &[ErrorKind::Invalid], &["no nodes"])?;
    }
    for url in ["redlock://", "redlock://?restart_grace_ms=0", "redlock:///3", "redlock://,"] {
        let error = Redlock::connect(url).await.err().ok_or("let in")?;
        check_error(&error, &[ErrorKind::Invalid], &["no nodes"])?;
    }
    Ok(())
}

async fn one_cycle(locks: &Locks) -> Outcome {
    Ok(locks.acquire("a").wait(LONG).await?.release().await?)
}

fn even() -> Outcome {
    for (nodes, is_warned) in [(3, false), (4, true)] {
        let heard = warnings(|_| async {
            let fleet = Fleet::start(nodes)?;
            one_cycle(&fleet.locks().await?).await
        })?;
        assert_eq!(heard.contains("even number"), is_warned, "{heard}");
    }
    Ok(())
}

fn clocks_apart() -> Outcome {
    let heard = warnings(|_| async {
        let fleet = Fleet::of(3, &RedisServer::builder().clock_skew())?;
        fleet.nodes[1].server.set_clock_nanos(1_000_000_000)?;
        works(&fleet.locks().await?, "a").await
    })?;
    assert!(heard.contains("clocks differ"), "{heard}");
    let apart = heard.split("apart_ms=").nth(1).and_then(|rest| rest.split(' ').next());
    let apart: u64 = apart.ok_or("no difference is told")?.parse()?;
    assert!((500..=1_010).contains(&apart), "{heard}");
    Ok(())
}

/// What is certain is bounded by the round trip.
fn clocks_together() -> Outcome {
    let heard = warnings(|_| async {
        let fleet = Fleet::start(3)?;
        fleet.nodes[0].proxy.delay(Direction::ToClient, millis(100))?;
        fleet.nodes[1].proxy.delay(Direction::ToServer, millis(100))?;
        one_cycle(&fleet.locks().await?).await
    })?;
    assert!(!heard.contains("clocks"), "{heard}");
    Ok(())
}
