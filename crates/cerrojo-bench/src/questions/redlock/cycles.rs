//! How often a second a lock can be acquired and released, and what a server that stands still changes in that.

use std::time::Duration;

use cerrojo_bench::{
    fleet::{Fleet, Job},
    peer::Peer,
};
use cerrojo_testbed::RedisServer;

use super::{PEERS, length, pause, question, server};
use crate::{
    Result,
    args::Args,
    harness::{Played, Question},
    questions::figures::rate,
};

const LENGTH_MS: u64 = 600;
/// Longer than it may take until a client no longer asks the server that stands still.
const STOPPED_MS: u64 = 1_600;

/// What is measured, by how many servers there are.
const FIGURES: [(usize, [&str; 3]); 2] = [
    (3, ["cycles, 3 nodes", "cycles, 1 of 3 nodes stopped", "with 1 of 3 stopped by all well"]),
    (5, ["cycles, 5 nodes", "cycles, 1 of 5 nodes stopped", "with 1 of 5 stopped by all well"]),
];

/// How many tasks of one process, and how long all servers are well and one is not.
#[derive(Clone, Copy)]
struct Cycling {
    tasks: u32,
    well: Duration,
    stopped: Duration,
}

pub(in super::super) fn pinned(args: &Args) -> Result<Question> {
    let asks = "acquire and release by 1 task, client and servers on one core";
    cycling(args, ("redlock-cycles-1", asks), 1)
}

pub(in super::super) fn of_16_tasks(args: &Args) -> Result<Question> {
    let asks = "acquire and release by 16 tasks of one process, each its own name";
    cycling(args, ("redlock-cycles-16", asks), 16)
}

pub(in super::super) fn of_64_tasks(args: &Args) -> Result<Question> {
    let asks = "acquire and release by 64 tasks of one process, each its own name";
    cycling(args, ("redlock-cycles-64", asks), 64)
}

fn cycling(args: &Args, what: (&'static str, &'static str), tasks: u32) -> Result<Question> {
    let (well, stopped) = (length(args, LENGTH_MS), length(args, STOPPED_MS));
    let cycling = Cycling { tasks, well, stopped };
    question(args, what, &PEERS, move |peer| in_all_states(peer, cycling))
}

fn in_all_states(peer: Peer, Cycling { tasks, well, stopped }: Cycling) -> Result<Played> {
    let mut played = Played::default();
    for (nodes, [when_well, when_stopped, by_well]) in FIGURES {
        let well = cycles(peer, tasks, &server::start(nodes)?, None, well)?;
        let servers = server::start(nodes)?;
        let stopped = cycles(peer, tasks, &servers, servers.last(), stopped)?;
        played = played
            .figure(when_well, "1/s", vec![well])
            .figure(when_stopped, "1/s", vec![stopped])
            .figure(by_well, "", vec![stopped / well]);
    }
    Ok(played)
}

/// A server that stands still does so just before the first cycle, when all are connected.
fn cycles(
    peer: Peer,
    tasks: u32,
    servers: &[RedisServer],
    stands_still: Option<&RedisServer>,
    length: Duration,
) -> Result<f64> {
    let job = Job { tasks, own_names: true, ..Job::new(&server::ports(servers), "bench") };
    let mut fleet = Fleet::start(&std::env::current_exe()?, &[peer], &job)?;
    if tasks == 1 {
        server::pin(servers, &fleet)?;
    }
    stands_still.map_or(Ok(()), RedisServer::freeze)?;
    fleet.go()?;
    pause(length);
    Ok(rate(&fleet.finish()?))
}
