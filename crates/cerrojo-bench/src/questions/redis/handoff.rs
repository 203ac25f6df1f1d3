//! How often a second one lock goes from one holder to the next, who gets it, and how long each waits.

use std::time::Duration;

use cerrojo_bench::{
    fleet::{Fleet, Job},
    peer::Peer,
};

use super::{WAITING, length, pause, question, server};
use crate::{
    Result,
    args::Args,
    harness::{Played, Question},
    questions::figures::{self, WAITERS},
};

/// How long it is measured, where nothing is done with the lock.
const AT_ONCE_MS: u64 = 1_000;

const HOLD_MS: u32 = 2;
const BETWEEN_MS: u32 = 20;

/// Who contends, and how: each of some processes with some tasks.
#[derive(Clone, Copy)]
pub(in super::super) struct Contest {
    nodes: usize,
    processes: usize,
    tasks: u32,
    hold_ms: u32,
    between_ms: u32,
    length: Duration,
}

pub(in super::super) fn by_tasks(args: &Args) -> Result<Question> {
    let asks = "one lock, 16 tasks of one process that want it at once again";
    contest(args, ("redis-handoff-tasks", asks), by_16_tasks(length(args, AT_ONCE_MS)))
}

pub(in super::super) fn by_processes(args: &Args) -> Result<Question> {
    let asks = "one lock, 16 processes that want it at once again";
    contest(args, ("redis-handoff-processes", asks), by_16_processes(length(args, AT_ONCE_MS)))
}

pub(in super::super) fn held_by_tasks(args: &Args) -> Result<Question> {
    let asks = "one lock, 16 tasks of one process, 2 ms held and 20 ms between";
    contest(args, ("redis-held-tasks", asks), held(by_16_tasks(length(args, 1_500))))
}

pub(in super::super) fn held_by_processes(args: &Args) -> Result<Question> {
    let asks = "one lock, 16 processes, 2 ms held and 20 ms between";
    // Longer than the others, since a 99th percentile wants a thousand waits.
    let length = length(args, 3_000);
    contest(args, ("redis-held-processes", asks), held(by_16_processes(length)))
}

pub(in super::super) fn by_16_tasks(length: Duration) -> Contest {
    Contest { nodes: 1, processes: 1, tasks: 16, hold_ms: 0, between_ms: 0, length }
}

pub(in super::super) fn by_16_processes(length: Duration) -> Contest {
    Contest { nodes: 1, processes: WAITERS, tasks: 1, hold_ms: 0, between_ms: 0, length }
}

fn held(contest: Contest) -> Contest {
    Contest { hold_ms: HOLD_MS, between_ms: BETWEEN_MS, ..contest }
}

fn contest(args: &Args, what: (&'static str, &'static str), contest: Contest) -> Result<Question> {
    question(args, what, &WAITING, move |peer| contend(peer, contest))
}

impl Contest {
    /// The same on so many servers.
    pub(in super::super) fn on(self, nodes: usize) -> Self {
        Self { nodes, ..self }
    }
}

pub(in super::super) fn contend(peer: Peer, contest: Contest) -> Result<Played> {
    let redis = server::start(contest.nodes)?;
    let Contest { tasks, hold_ms, between_ms, .. } = contest;
    let job = Job { tasks, hold_ms, between_ms, ..Job::new(&server::ports(&redis), "bench") };
    let peers = vec![peer; contest.processes];
    let mut fleet = Fleet::start(&std::env::current_exe()?, &peers, &job)?;
    server::reset(&redis)?;
    fleet.go()?;
    pause(contest.length);
    let turns = fleet.finish()?;
    let commands = server::work(&redis)?.commands / turns.len().max(1) as f64;
    Ok(figures::of_contest(turns).figure("commands of a turn, in scripts too", "", vec![commands]))
}
