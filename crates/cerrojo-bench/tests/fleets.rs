//! Real clients of other libraries take turns on one lock, alone and beside ours, and no update is lost.
#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a failed step fails the test, and why it is ignored is told"
)]

use std::{path::Path, process::ExitCode, time::Duration};

use cerrojo::Deadline;
use cerrojo_bench::{
    fleet::{Fleet, Job, hand_offs},
    peer::Peer,
};
use cerrojo_testbed::{Need, RedisServer, Reply, need};
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

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    ALONE.iter().filter_map(|peer| peer.missing()).for_each(|why| eprintln!("{why}"));
    let mut trials = vec![trial("without_a_lock_updates_are_lost".into(), &[], careless)];
    for peer in ALONE {
        let name = format!("four_processes_of_{}_lose_no_update", snake(peer));
        trials.push(trial(name, &[peer], move || alone(peer)));
    }
    for peer in MIXED {
        let name = format!("ours_and_{}_lose_no_update", snake(peer));
        trials.push(trial(name, &[peer], move || mixed(peer)));
    }
    // One fleet alone keeps both cores of a small machine busy.
    let arguments = Arguments { test_threads: Some(1), ..arguments };
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn snake(peer: Peer) -> String {
    peer.name().replace('-', "_")
}

fn trial(
    name: String,
    peers: &[Peer],
    proof: impl FnOnce() -> Result<(), Failed> + Send + 'static,
) -> Trial {
    Trial::test(name, proof).with_ignored_flag(is_ignored(peers))
}

/// Ignored when something is missing, unless everything is required.
fn is_ignored(peers: &[Peer]) -> bool {
    let missing = peers.iter().any(|peer| peer.missing().is_some());
    let required = std::env::var_os("CERROJO_TEST_REQUIRE").is_some();
    need("redis-server") == Need::Ignore || (missing && !required)
}

fn start(server: &RedisServer, peers: &[Peer], job: Job) -> Result<Fleet, Failed> {
    let job = Job { counter: Some(COUNTER.to_owned()), ..job };
    let mut fleet = Fleet::start(Path::new(OWN), peers, &job)?;
    fleet.go()?;
    assert_eq!(server.command(&["PING"])?, "PONG");
    Ok(fleet)
}

/// Shows that the others could fail.
fn careless() -> Result<(), Failed> {
    let server = RedisServer::start()?;
    let job = Job { rounds: 50, hold_ms: 1, ..Job::new(server.port(), "one") };
    let turns = start(&server, &[Peer::NoLock; 4], job)?.turns()?;
    assert_eq!(turns.len(), 200);
    assert!(counted(&server)? < 200);
    Ok(())
}

fn alone(peer: Peer) -> Result<(), Failed> {
    let server = RedisServer::start()?;
    let job = Job { rounds: 25, hold_ms: 1, between_ms: 3, ..Job::new(server.port(), "one") };
    let turns = start(&server, &[peer; 4], job)?.turns()?;
    assert_eq!((turns.len(), counted(&server)?), (100, 100));
    Ok(())
}

fn mixed(peer: Peer) -> Result<(), Failed> {
    let server = RedisServer::start()?;
    let job = Job { hold_ms: 1, between_ms: 10, ..Job::new(server.port(), "one") };
    let job = Job { format: Some(peer.name().to_owned()), ..job };
    let fleet = start(&server, &[&[Peer::Ours; 2][..], &[peer; 4]].concat(), job)?;
    await_hand_offs(&server, peer)?;
    let turns = fleet.finish()?.len();
    assert_eq!((order(&server)?.len(), counted(&server)?), (turns, turns));
    Ok(())
}

fn await_hand_offs(server: &RedisServer, peer: Peer) -> Result<(), Failed> {
    let end = Deadline::after(LIMIT);
    loop {
        let order = order(server)?;
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

fn counted(server: &RedisServer) -> Result<usize, Failed> {
    Ok(server.command(&["GET", COUNTER])?.to_string().parse()?)
}

fn order(server: &RedisServer) -> Result<Vec<String>, Failed> {
    match server.command(&["LRANGE", &format!("{COUNTER}/order"), "0", "-1"])? {
        Reply::List(who) => Ok(who.iter().map(Reply::to_string).collect()),
        other => Err(format!("not a list: {other}").into()),
    }
}
