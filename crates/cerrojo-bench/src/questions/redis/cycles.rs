//! How often a second a lock can be acquired and released, and what one cycle asks of the server.

use std::time::Duration;

use cerrojo_bench::{
    fleet::{Fleet, Job},
    peer::Peer,
};
use cerrojo_testbed::RedisServer;

use super::{length, pause, question, server};
use crate::{
    Result,
    args::Args,
    harness::{Played, Question},
    questions::figures::rate,
};

const PEERS: [Peer; 6] =
    [Peer::Ours, Peer::Raw, Peer::Rslock, Peer::RedisPy, Peer::NodeRedlock, Peer::PythonRedisLock];

const LENGTH_MS: u64 = 600;

pub(in super::super) fn pinned(args: &Args) -> Result<Question> {
    let length = length(args, LENGTH_MS);
    let asks = "acquire and release by 1 task, client and server on one core";
    question(args, ("redis-cycles-1", asks), &PEERS, move |peer| cycles(peer, 1, length))
}

pub(in super::super) fn of_16_tasks(args: &Args) -> Result<Question> {
    let length = length(args, LENGTH_MS);
    let asks = "acquire and release by 16 tasks of one process, each its own name";
    let question =
        question(args, ("redis-cycles-16", asks), &PEERS, move |peer| cycles(peer, 16, length))?;
    Ok(question.compared_with(Peer::Raw.name(), super::ROUNDS))
}

pub(in super::super) fn of_64_tasks(args: &Args) -> Result<Question> {
    let length = length(args, LENGTH_MS);
    let asks = "acquire and release by 64 tasks of one process, each its own name";
    let question =
        question(args, ("redis-cycles-64", asks), &PEERS, move |peer| cycles(peer, 64, length))?;
    Ok(question.compared_with(Peer::Raw.name(), super::ROUNDS))
}

fn cycles(peer: Peer, tasks: u32, length: Duration) -> Result<Played> {
    let redis = server::start(1)?;
    let job = Job { tasks, own_names: true, ..Job::new(&server::ports(&redis), "bench") };
    let mut fleet = Fleet::start(&std::env::current_exe()?, &[peer], &job)?;
    if tasks == 1 {
        server::pin(&redis, &fleet)?;
    }
    server::reset(&redis)?;
    fleet.go()?;
    pause(length);
    let turns = fleet.finish()?;
    let played = Played::default().figure("cycles", "1/s", vec![rate(&turns)]);
    if tasks == 1 { with_requests(played, &redis, turns.len()) } else { Ok(played) }
}

fn with_requests(played: Played, redis: &[RedisServer], cycles: usize) -> Result<Played> {
    let (work, cycles) = (server::work(redis)?, cycles.max(1) as f64);
    Ok(played.figure("round trips of a cycle", "", vec![work.reads / cycles]).figure(
        "commands of a cycle, in scripts too",
        "",
        vec![work.commands / cycles],
    ))
}
