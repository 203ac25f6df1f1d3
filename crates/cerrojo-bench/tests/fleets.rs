//! Real clients of other libraries take turns on one lock, alone and beside ours, and no update is lost.
#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a failed step fails the test, and why it is ignored is told"
)]

use std::{path::Path, process::ExitCode, time::Duration};

use cerrojo::{Deadline, backend::postgres::Postgres};
use cerrojo_bench::{
    fleet::{Counter, Fleet, Job, Servers, hand_offs},
    peer::{LEASE_TABLE, Peer},
};
use cerrojo_testbed::{
    Need, PostgresServer, RedisServer, Reply, ZooKeeperEnsemble, ZooKeeperServer, need,
};
use libtest_mimic::{Arguments, Failed, Trial};

const OWN: &str = env!("CARGO_BIN_EXE_cerrojo-bench");
const COUNTER: &str = "counter";

/// A mixed fleet proves something only with so many hand-offs in each direction.
const HAND_OFFS: usize = 100;

/// How long a mixed fleet may take for them.
const LIMIT: Duration = Duration::from_secs(120);

/// Each is tried alone.
const ALONE: [Peer; 4] = [Peer::Rslock, Peer::RedisPy, Peer::NodeRedlock, Peer::PythonRedisLock];

/// Each is mixed with ours, which then has its format.
const MIXED: [Peer; 3] = [Peer::Rslock, Peer::RedisPy, Peer::NodeRedlock];

/// Each is mixed with ours on several servers, of which the majority has the lock.
const OF_A_MAJORITY: [Peer; 2] = [Peer::Rslock, Peer::NodeRedlock];

/// Each is tried alone in PostgreSQL.
const IN_POSTGRES: [Peer; 5] = [
    Peer::Ours,
    Peer::Upsert,
    Peer::SessionAdvisory,
    Peer::TransactionAdvisory,
    Peer::Serializable,
];

/// Each is tried alone in ZooKeeper.
const IN_ZOOKEEPER: [Peer; 2] = [Peer::Curator, Peer::Kazoo];

/// The servers of a fleet.
struct Stage {
    nodes: Vec<RedisServer>,
    /// Has the number that they count up, and no lock.
    counts: RedisServer,
}

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let others = ALONE.iter().chain(&IN_ZOOKEEPER);
    others.filter_map(|peer| peer.missing()).for_each(|why| eprintln!("{why}"));
    let mut trials = vec![trial("without_a_lock_updates_are_lost".into(), &[], careless)];
    for peer in ALONE {
        let name = format!("four_processes_of_{}_lose_no_update", snake(peer));
        trials.push(trial(name, &[peer], move || alone(peer)));
    }
    for peer in MIXED {
        let name = format!("ours_and_{}_lose_no_update", snake(peer));
        trials.push(trial(name, &[peer], move || mixed(peer, 1)));
    }
    for peer in OF_A_MAJORITY {
        let name = format!("ours_and_{}_on_three_nodes_lose_no_update", snake(peer));
        trials.push(trial(name, &[peer], move || mixed(peer, 3)));
    }
    for peer in IN_POSTGRES {
        let name = format!("four_processes_of_{}_in_postgres_lose_no_update", snake(peer));
        trials.push(needing("postgres", trial(name, &[peer], move || in_postgres(peer))));
    }
    for peer in IN_ZOOKEEPER {
        let name = format!("four_processes_of_{}_in_zookeeper_lose_no_update", snake(peer));
        trials.push(needing("zkServer.sh", trial(name, &[peer], move || in_zookeeper(peer))));
    }
    // One fleet alone keeps both cores of a small machine busy.
    let arguments = Arguments { test_threads: Some(1), ..arguments };
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn snake(peer: Peer) -> String {
    peer.name().replace(['-', ' '], "_")
}

fn trial(
    name: String,
    peers: &[Peer],
    proof: impl FnOnce() -> Result<(), Failed> + Send + 'static,
) -> Trial {
    Trial::test(name, proof).with_ignored_flag(is_ignored(peers))
}

fn needing(server: &str, trial: Trial) -> Trial {
    if need(server) == Need::Ignore { trial.with_ignored_flag(true) } else { trial }
}

/// Ignored when something is missing, unless everything is required.
fn is_ignored(peers: &[Peer]) -> bool {
    let missing = peers.iter().any(|peer| peer.missing().is_some());
    let required = std::env::var_os("CERROJO_TEST_REQUIRE").is_some();
    need("redis-server") == Need::Ignore || (missing && !required)
}

impl Stage {
    fn new(nodes: usize) -> Result<Self, Failed> {
        let nodes = (0..nodes).map(|_| RedisServer::start()).collect::<Result<_, _>>()?;
        Ok(Self { nodes, counts: RedisServer::start()? })
    }

    fn job(&self) -> Job {
        let nodes: Vec<_> = self.nodes.iter().map(RedisServer::port).collect();
        let counter = Counter { port: self.counts.port(), key: COUNTER.to_owned() };
        Job { hold_ms: 1, counter: Some(counter), ..Job::new(&nodes, "one") }
    }

    fn counted(&self) -> Result<usize, Failed> {
        Ok(self.counts.command(&["GET", COUNTER])?.to_string().parse()?)
    }

    /// Who had the lock, one after the other.
    fn order(&self) -> Result<Vec<String>, Failed> {
        match self.counts.command(&["LRANGE", &format!("{COUNTER}/order"), "0", "-1"])? {
            Reply::List(who) => Ok(who.iter().map(Reply::to_string).collect()),
            other => Err(format!("not a list: {other}").into()),
        }
    }
}

fn start(peers: &[Peer], job: &Job) -> Result<Fleet, Failed> {
    let mut fleet = Fleet::start(Path::new(OWN), peers, job)?;
    fleet.go()?;
    Ok(fleet)
}

/// Shows that the others could fail.
fn careless() -> Result<(), Failed> {
    let stage = Stage::new(1)?;
    let job = Job { rounds: 50, ..stage.job() };
    let turns = start(&[Peer::NoLock; 4], &job)?.turns()?;
    assert_eq!(turns.len(), 200);
    assert!(stage.counted()? < 200);
    Ok(())
}

fn alone(peer: Peer) -> Result<(), Failed> {
    let stage = Stage::new(1)?;
    let job = Job { rounds: 25, between_ms: 3, ..stage.job() };
    let turns = start(&[peer; 4], &job)?.turns()?;
    assert_eq!((turns.len(), stage.counted()?), (100, 100));
    Ok(())
}

fn in_postgres(peer: Peer) -> Result<(), Failed> {
    let (stage, server) = (Stage::new(0)?, PostgresServer::builder().fast().start()?);
    let url = server.url("postgres", "app");
    server.superuser_sql(LEASE_TABLE)?;
    server.superuser_sql(&Postgres::builder(&url).init_sql()?)?;
    let job = Job { servers: Servers::Postgres(url), rounds: 25, ..stage.job() };
    let turns = start(&[peer; 4], &job)?.turns()?;
    assert_eq!((turns.len(), stage.counted()?), (100, 100));
    Ok(())
}

fn in_zookeeper(peer: Peer) -> Result<(), Failed> {
    let stage = Stage::new(0)?;
    let ensemble = ZooKeeperEnsemble::of(&ZooKeeperServer::builder().fast())?;
    let url = format!("zookeeper://{}", ensemble.endpoints().join(","));
    let job = Job { servers: Servers::ZooKeeper(url), rounds: 25, ..stage.job() };
    let turns = start(&[peer; 4], &job)?.turns()?;
    assert_eq!((turns.len(), stage.counted()?), (100, 100));
    Ok(())
}

fn mixed(peer: Peer, nodes: usize) -> Result<(), Failed> {
    let stage = Stage::new(nodes)?;
    let format = Some(peer.name().to_owned());
    let job = Job { between_ms: 10, format, ..stage.job() };
    let fleet = start(&[&[Peer::Ours; 2][..], &[peer; 4]].concat(), &job)?;
    await_hand_offs(&stage, peer)?;
    let turns = fleet.finish()?.len();
    assert_eq!((stage.order()?.len(), stage.counted()?), (turns, turns));
    Ok(())
}

fn await_hand_offs(stage: &Stage, peer: Peer) -> Result<(), Failed> {
    let end = Deadline::after(LIMIT);
    loop {
        let order = stage.order()?;
        let pairs = [(Peer::Ours, peer), (peer, Peer::Ours)];
        let [to, from] = pairs.map(|(from, to)| hand_offs(&order, from, to));
        if to.min(from) >= HAND_OFFS {
            eprintln!("ours to {peer}: {to}, back: {from}, of {} turns", order.len());
            return Ok(());
        }
        if end.has_passed() {
            let short = format!("after {LIMIT:?} ours to {peer}: {to}, back: {from}");
            return Err(format!("{short}; {HAND_OFFS} wanted of each").into());
        }
        pause();
    }
}

#[allow(
    clippy::disallowed_methods,
    reason = "a list in a server does not call; no executor runs here"
)]
fn pause() {
    std::thread::sleep(Duration::from_millis(100));
}
