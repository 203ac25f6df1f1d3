//! How quickly one learns that somebody else has the lock, and what is left in the nodes of those who were refused.

use std::time::Duration;

use cerrojo_bench::{
    fleet::{Fleet, Job, Turn},
    peer::Peer,
};
use cerrojo_testbed::RedisServer;

use super::{PEERS, length, pause, question, server};
use crate::{
    Result,
    args::Args,
    harness::{Played, Question},
    questions::figures::overlap,
};

const NODES: usize = 3;
const PROCESSES: usize = 8;
/// Long enough that most are refused, short enough that all race for it often.
const HOLD_MS: u32 = 5;

/// In which what is on its way arrives, also at a node that has just gone on.
const ARRIVAL: Duration = Duration::from_millis(100);

/// In which state the nodes are, and what is measured is called then.
struct State {
    stopped: usize,
    length_ms: u64,
    refused: &'static str,
    granted: &'static str,
    left: &'static str,
}

const STATES: [State; 2] = [
    State {
        stopped: 0,
        length_ms: 1_500,
        refused: "refused",
        granted: "granted",
        left: "keys left behind",
    },
    State {
        stopped: 1,
        // More than the 1.5 s that a node is given.
        length_ms: 3_500,
        refused: "refused, 1 node stopped",
        granted: "granted, 1 node stopped",
        left: "keys left behind, 1 node stopped until the end",
    },
];

pub(in super::super) fn ask(args: &Args) -> Result<Question> {
    let asks = "one lock on 3 nodes, 8 processes that try again and again without waiting";
    let lengths = STATES.map(|state| length(args, state.length_ms));
    let mut question = question(args, ("redlock-refused", asks), &PEERS, move |peer| {
        let states = STATES.iter().zip(lengths).filter(|(state, _)| can(peer, state));
        states.into_iter().try_fold(Played::default(), |played, (state, length)| {
            race(peer, length, state, played)
        })
    })?;
    let endless =
        "node-redlock, 1 node stopped: where the votes are split it waits for that node for ever";
    question.left_out.push(endless.to_owned());
    Ok(question)
}

/// It waits for every node where the votes are split.
fn can(peer: Peer, state: &State) -> bool {
    peer != Peer::NodeRedlock || state.stopped == 0
}

fn race(peer: Peer, length: Duration, state: &State, played: Played) -> Result<Played> {
    let servers = server::start(NODES)?;
    let job = Job { tries: true, hold_ms: HOLD_MS, ..Job::new(&server::ports(&servers), "bench") };
    let mut fleet = Fleet::start(&std::env::current_exe()?, &[peer; PROCESSES], &job)?;
    servers.iter().take(state.stopped).try_for_each(RedisServer::freeze)?;
    fleet.go()?;
    pause(length);
    let turns = fleet.finish()?;
    servers.iter().take(state.stopped).try_for_each(RedisServer::thaw)?;
    pause(ARRIVAL);
    let left = keys(&servers)?;
    Ok(tried(played, turns, length, state).figure(state.left, "", vec![left]))
}

/// Nobody has the lock any more.
fn keys(servers: &[RedisServer]) -> Result<f64> {
    let mut sum = 0.0;
    for server in servers {
        sum += server.command(&["DBSIZE"])?.to_string().parse::<f64>()?;
    }
    Ok(sum)
}

fn tried(played: Played, turns: Vec<Turn>, length: Duration, state: &State) -> Played {
    let (refused, mut granted): (Vec<_>, Vec<_>) = turns.into_iter().partition(Turn::was_refused);
    granted.sort_by_key(|turn| turn.acquired);
    let violations = granted.iter().zip(granted.iter().skip(1)).filter_map(overlap).collect();
    let rate = |turns: &[Turn]| vec![turns.len() as f64 / length.as_secs_f64()];
    played
        .figure(state.refused, "1/s", rate(&refused))
        .figure(state.granted, "1/s", rate(&granted))
        .violations(violations)
}
