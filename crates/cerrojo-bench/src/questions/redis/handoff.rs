//! How often a second one lock goes from one holder to the next, who gets it, and how long each waits.

use std::{collections::BTreeMap, time::Duration};

use cerrojo_bench::{
    fleet::{Fleet, Job, Turn},
    peer::Peer,
};

use super::{WAITING, length, pause, question, server};
use crate::{
    Result,
    args::Args,
    harness::{Played, Question},
    stats::Spread,
};

const WAITERS: usize = 16;

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
    Ok(played(turns).figure("commands of a turn, in scripts too", "", vec![commands]))
}

fn played(mut turns: Vec<Turn>) -> Played {
    turns.sort_by_key(|turn| turn.acquired);
    let violations = turns.iter().zip(turns.iter().skip(1)).filter_map(overlap).collect();
    let warm = turns.split_off(turns.len() / 10);
    let waits: Vec<_> = warm.iter().map(|turn| (turn.acquired - turn.asked) as f64 / 1e6).collect();
    let long = Spread::of(&waits).map(|spread| spread.p99);
    Played::default()
        .figure("hand-offs", "1/s", vec![hand_offs(&warm)])
        .figure("wait", "ms", waits)
        .figure("99th percentile of a round's waits", "ms", Vec::from_iter(long))
        .figure("most by fewest turns of one", "", vec![imbalance(&warm)])
        .violations(violations)
}

pub(in super::super) fn overlap((one, next): (&Turn, &Turn)) -> Option<String> {
    (next.acquired < one.released).then(|| format!("two holders at once: {one:?} and {next:?}"))
}

/// Hand-offs a second; one that takes the lock again after itself is none.
fn hand_offs(turns: &[Turn]) -> f64 {
    let pairs = turns.iter().zip(turns.iter().skip(1));
    let count = pairs.filter(|(one, next)| who(one) != who(next)).count();
    let ends = turns.first().zip(turns.last());
    let took = ends.map_or(0, |(first, last)| last.acquired - first.acquired);
    count as f64 * 1e9 / took.max(1) as f64
}

/// Where somebody had none, as if it had been one.
fn imbalance(turns: &[Turn]) -> f64 {
    let mut counts = BTreeMap::new();
    turns.iter().for_each(|turn| *counts.entry(who(turn)).or_insert(0_u32) += 1);
    let most = counts.values().max().copied().unwrap_or(1);
    let fewest =
        if counts.len() < WAITERS { 1 } else { counts.values().min().copied().unwrap_or(1) };
    f64::from(most) / f64::from(fewest)
}

fn who(turn: &Turn) -> (usize, u64) {
    (turn.process, turn.task)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(task: u64, acquired: u64) -> Turn {
        Turn { process: 0, task, asked: acquired, acquired, released: acquired + 5 }
    }

    #[test]
    fn taking_it_again_is_no_hand_off() {
        let turns = [turn(0, 0), turn(0, 500_000_000), turn(1, 1_000_000_000)];
        assert_eq!(hand_offs(&turns), 1.0);
        assert_eq!(hand_offs(&[]), 0.0);
    }

    #[test]
    fn two_holders_at_once_are_seen() {
        assert!(overlap((&turn(0, 0), &turn(1, 4))).is_some());
        assert!(overlap((&turn(0, 0), &turn(1, 5))).is_none());
    }

    #[test]
    fn who_had_no_turn_counts_as_one() {
        let mut turns: Vec<_> = (0..16).map(|task| turn(task, task)).collect();
        turns.extend([turn(3, 20), turn(3, 21)]);
        assert_eq!(imbalance(&turns), 3.0);
        turns.retain(|turn| turn.task != 4);
        assert_eq!(imbalance(&turns), 3.0);
    }
}
