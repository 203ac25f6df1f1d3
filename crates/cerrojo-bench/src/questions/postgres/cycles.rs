//! How often a second a lock can be acquired and released.

use std::{rc::Rc, time::Duration};

use cerrojo_bench::{
    fleet::{Fleet, Job},
    peer::Peer,
};

use super::{Database, ROUNDS, length, pause, pgbench, question};
use crate::{
    Result,
    aim::{Aim, Wanted},
    args::Args,
    harness::{Played, Question},
    questions::figures::rate,
};

const PEERS: [Peer; 6] = [
    Peer::Ours,
    Peer::Upsert,
    Peer::SessionAdvisory,
    Peer::TransactionAdvisory,
    Peer::Serializable,
    Peer::DistributedLock,
];

const LENGTH_MS: u64 = 1_000;

pub(in super::super) fn of_1_task(args: &Args) -> Result<Question> {
    let asks = "acquire and release by 1 task";
    cycling(args, ("postgres-cycles-1", asks), 1, 0.9)
}

pub(in super::super) fn of_16_tasks(args: &Args) -> Result<Question> {
    let asks = "acquire and release by 16 tasks of one process, each its own name";
    cycling(args, ("postgres-cycles-16", asks), 16, 0.9)
}

pub(in super::super) fn of_64_tasks(args: &Args) -> Result<Question> {
    let asks = "acquire and release by 64 tasks of one process, each its own name";
    cycling(args, ("postgres-cycles-64", asks), 64, 4.0)
}

/// The bare upsert is that of pgbench, which is as good as without a client; that of Rust shows what the client costs.
fn cycling(
    args: &Args,
    what: (&'static str, &'static str),
    tasks: u32,
    wanted: f64,
) -> Result<Question> {
    let (server, length) = (Rc::default(), length(args, LENGTH_MS));
    let play = move |peer, database: &_| cycles(peer, tasks, database, length);
    let mut question =
        question(args, what, (&server, &PEERS), play)?.compared_with(pgbench::UPSERT, ROUNDS);
    for (name, script) in pgbench::SCRIPTS {
        let server = Rc::clone(&server);
        question.add(name, move || pgbench::cycles(script, tasks, &server.database()?));
    }
    let aim = || Aim::new("cycles", Peer::Ours.name(), Wanted::AtLeast(wanted));
    question.aims = vec![aim().by(pgbench::UPSERT)];
    Ok(question)
}

fn cycles(peer: Peer, tasks: u32, database: &Database, length: Duration) -> Result<Played> {
    let job = Job { tasks, own_names: true, ..Job::in_database(&database.url(), "bench") };
    let mut fleet = Fleet::start(&std::env::current_exe()?, &[peer], &job)?;
    fleet.go()?;
    pause(length);
    Ok(Played::default().figure("cycles", "1/s", vec![rate(&fleet.finish()?)]))
}
