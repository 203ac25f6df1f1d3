//! What waiting costs while nothing happens.

use std::time::Duration;

use cerrojo::Deadline;
use cerrojo_bench::{
    fleet::{Fleet, Job},
    peer::Peer,
};
use cerrojo_testbed::RedisServer;

use super::{WAITING, length, pause, question, server};
use crate::{
    Result,
    args::Args,
    harness::{Played, Question},
};

/// So long that no renewal falls into a measurement.
const TTL_MS: u32 = 600_000;

/// Longer than a measurement.
const HOLD_MS: u32 = 120_000;

/// How long it goes on before it is measured, and how long it is measured, both in milliseconds. Ours asks for the first time
/// after 2 s, and then each 5 to 10 s: a shorter time would count the first, or miss one.
const SETTLING_MS: u64 = 10_000;
const LENGTH_MS: u64 = 7_500;

/// How long it may take until everything is held.
const PATIENCE: Duration = Duration::from_secs(60);

/// Who waits, each of some processes with some tasks, and for how many names.
#[derive(Clone, Copy)]
struct Waiters {
    processes: usize,
    tasks: u32,
    own_names: bool,
    settling: Duration,
    length: Duration,
}

pub(in super::super) fn of_many(args: &Args) -> Result<Question> {
    let asks = "200 waiters for one held lock, 10 in each of 20 processes, while nothing happens";
    let waiters = Waiters { processes: 20, tasks: 10, own_names: false, ..Waiters::of(args) };
    let play = move |peer| wait(peer, waiters);
    Ok(question(args, ("redis-waiters", asks), &WAITING, play)?
        .compared_with(Peer::Rslock.name(), 1))
}

/// Not for libraries that need a thread, and a connection, for each wait.
pub(in super::super) fn for_many_names(args: &Args) -> Result<Question> {
    let asks =
        "10,000 held locks, each waited for by one task of one process, while nothing happens";
    let tasks = if args.quick { 1_000 } else { 10_000 };
    let waiters = Waiters { tasks, ..Waiters::of(args) };
    let peers = [Peer::Ours, Peer::Rslock, Peer::NodeRedlock];
    let play = move |peer| wait(peer, waiters);
    let mut question =
        question(args, ("redis-names", asks), &peers, play)?.compared_with(Peer::Rslock.name(), 1);
    let threads = "redis-py and python-redis-lock: a thread for each wait";
    question.left_out.push(threads.to_owned());
    Ok(question)
}

impl Waiters {
    /// One for its own name.
    fn of(args: &Args) -> Self {
        let (settling, length) = (length(args, SETTLING_MS), length(args, LENGTH_MS));
        Self { processes: 1, tasks: 1, own_names: true, settling, length }
    }
}

fn wait(peer: Peer, waiters: Waiters) -> Result<Played> {
    let redis = RedisServer::start()?;
    let Waiters { processes, tasks, own_names, settling, length } = waiters;
    let job = Job { own_names, ttl_ms: TTL_MS, ..Job::new(&[redis.port()], "bench") };
    let holder = hold(peer, &redis, &job, if own_names { tasks } else { 1 })?;
    let own = std::env::current_exe()?;
    let mut fleet = Fleet::start(&own, &vec![peer; processes], &Job { tasks, ..job })?;
    fleet.go()?;
    pause(settling);
    let played = measure(&redis, &fleet, length)?;
    holder.check()?;
    fleet.check()?;
    Ok(played)
}

/// Every lock is held until the answer is dropped.
fn hold(peer: Peer, redis: &RedisServer, job: &Job, locks: u32) -> Result<Fleet> {
    let job = Job { tasks: locks, hold_ms: HOLD_MS, ..job.clone() };
    let mut holder = Fleet::start(&std::env::current_exe()?, &[peer], &job)?;
    holder.go()?;
    let end = Deadline::after(PATIENCE);
    while redis.command(&["DBSIZE"])?.to_string().parse::<u32>()? < locks {
        if end.has_passed() {
            return Err(format!("{peer} does not hold {locks} locks after {PATIENCE:?}").into());
        }
        pause(Duration::from_millis(20));
    }
    Ok(holder)
}

fn measure(redis: &RedisServer, fleet: &Fleet, length: Duration) -> Result<Played> {
    let servers = std::slice::from_ref(redis);
    server::reset(servers)?;
    let before = server::cpu_seconds(redis, fleet)?;
    pause(length);
    let [by_server, by_clients] = server::cpu_seconds(redis, fleet)?;
    let seconds = length.as_secs_f64();
    let percent = |before, after: f64| vec![100.0 * (after - before) / seconds];
    let [server_before, clients_before] = before;
    let commands = server::work(servers)?.commands / seconds;
    Ok(Played::default()
        .figure("commands, in scripts too", "1/s", vec![commands])
        .figure("CPU of the server", "%", percent(server_before, by_server))
        .figure("CPU of all waiting processes", "%", percent(clients_before, by_clients)))
}
