//! How often a second one lock goes from one holder to the next, who gets it, and how long each waits.

use std::{rc::Rc, time::Duration};

use cerrojo_bench::{
    fleet::{Fleet, Job},
    peer::Peer,
};

use super::{Database, length, pause, question};
use crate::{
    Result,
    aim::{Aim, Wanted},
    args::Args,
    harness::{Played, Question},
    questions::figures::{self, WAITERS},
};

/// SQL alone polls a row, or waits in the server for an advisory lock, as the crate does too.
const PEERS: [Peer; 4] = [Peer::Ours, Peer::Upsert, Peer::SessionAdvisory, Peer::DistributedLock];

/// Long enough for a thousand hand-offs in four rounds, of which a 99th percentile is worth something.
const LENGTH_MS: u64 = 1_400;

/// The same where it is polled: then it is passed on seldom.
const POLLED_MS: u64 = 4_500;
const POLLED_HELD_MS: u64 = 2_000;

const HOLD_MS: u32 = 2;
const BETWEEN_MS: u32 = 20;

/// How many processes of how many tasks, and what they do with the lock.
#[derive(Clone, Copy)]
struct Contest {
    processes: usize,
    tasks: u32,
    hold_ms: u32,
    between_ms: u32,
    length: Duration,
    polled: Duration,
}

pub(in super::super) fn by_tasks(args: &Args) -> Result<Question> {
    let asks = "one lock, 16 tasks of one process that want it at once again";
    let contest = Contest { tasks: 16, ..Contest::of(args, POLLED_MS) };
    contending(args, ("postgres-handoff-tasks", asks), contest)
}

pub(in super::super) fn by_processes(args: &Args) -> Result<Question> {
    let asks = "one lock, 16 processes that want it at once again";
    let contest = Contest { processes: WAITERS, ..Contest::of(args, POLLED_MS) };
    across_processes(args, ("postgres-handoff-processes", asks), contest)
}

/// What is polled is taken again by the one that has just given it back, where nobody pauses: here all pause.
pub(in super::super) fn held_by_processes(args: &Args) -> Result<Question> {
    let asks = "one lock, 16 processes, 2 ms held and 20 ms between";
    let (hold_ms, between_ms) = (HOLD_MS, BETWEEN_MS);
    let contest = Contest::of(args, POLLED_HELD_MS);
    let contest = Contest { processes: WAITERS, hold_ms, between_ms, ..contest };
    across_processes(args, ("postgres-held-processes", asks), contest)
}

fn across_processes(
    args: &Args,
    what: (&'static str, &'static str),
    contest: Contest,
) -> Result<Question> {
    let mut question = contending(args, what, contest)?;
    question.aims = vec![
        ours("hand-offs", Wanted::AtLeast(3.0)).by(Peer::Upsert.name()),
        ours("hand-offs", Wanted::AtLeast(0.3)).by(Peer::SessionAdvisory.name()),
        ours("release to next holder", Wanted::AtMost(5.0)),
    ];
    Ok(question)
}

fn ours(figure: &'static str, wanted: Wanted) -> Aim {
    Aim::new(figure, Peer::Ours.name(), wanted)
}

impl Contest {
    /// One task of one process, without a pause.
    fn of(args: &Args, polled_ms: u64) -> Self {
        let [length, polled] = [LENGTH_MS, polled_ms].map(|ms| length(args, ms));
        Self { processes: 1, tasks: 1, hold_ms: 0, between_ms: 0, length, polled }
    }

    fn length_for(&self, peer: Peer) -> Duration {
        if peer == Peer::Upsert { self.polled } else { self.length }
    }
}

fn contending(
    args: &Args,
    what: (&'static str, &'static str),
    contest: Contest,
) -> Result<Question> {
    let play = move |peer, database: &_| contend(peer, contest, database);
    question(args, what, (&Rc::default(), &PEERS), play)
}

fn contend(peer: Peer, contest: Contest, database: &Database) -> Result<Played> {
    let Contest { tasks, hold_ms, between_ms, .. } = contest;
    let job = Job { tasks, hold_ms, between_ms, ..Job::in_database(&database.url(), "bench") };
    let mut fleet = Fleet::start(&std::env::current_exe()?, &vec![peer; contest.processes], &job)?;
    fleet.go()?;
    pause(contest.length_for(peer));
    Ok(figures::of_contest(fleet.finish()?))
}
