//! How often a second one lock goes from one holder to the next, who gets it, and how long each waits.

use cerrojo_bench::peer::Peer;

use super::{
    super::redis::handoff::{Contest, by_16_processes, by_16_tasks, contend},
    PEERS, length, question,
};
use crate::{Result, args::Args, harness::Question};

/// Long enough that all have seen several hand-offs, also where there are few.
const LENGTH_MS: u64 = 2_500;
const NODES: usize = 3;

pub(in super::super) fn by_tasks(args: &Args) -> Result<Question> {
    let asks = "one lock on 3 nodes, 16 tasks of one process that want it at once again";
    contest(args, ("redlock-handoff-tasks", asks), by_16_tasks(length(args, LENGTH_MS)))
}

pub(in super::super) fn by_processes(args: &Args) -> Result<Question> {
    let asks = "one lock on 3 nodes, 16 processes that want it at once again";
    contest(args, ("redlock-handoff-processes", asks), by_16_processes(length(args, LENGTH_MS)))
}

fn contest(args: &Args, what: (&'static str, &'static str), contest: Contest) -> Result<Question> {
    let contest = contest.on(NODES);
    question(args, what, &PEERS, move |peer: Peer| contend(peer, contest))
}
