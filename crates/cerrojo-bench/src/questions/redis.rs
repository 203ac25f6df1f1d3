//! Our lock in Redis beside other clients, each on a fresh server with nothing else to do.

pub(super) mod cycles;
pub(super) mod handoff;
pub(super) mod server;
mod waiting;

use std::{rc::Rc, time::Duration};

use cerrojo_bench::peer::Peer;

pub(super) use self::{
    cycles::{of_16_tasks, of_64_tasks, pinned},
    handoff::{by_processes, by_tasks, held_by_processes, held_by_tasks},
    waiting::{for_many_names, of_many},
};
use crate::{
    Result,
    args::Args,
    harness::{Played, Question},
};

/// Every library that waits.
const WAITING: [Peer; 5] =
    [Peer::Ours, Peer::Rslock, Peer::RedisPy, Peer::NodeRedlock, Peer::PythonRedisLock];

const ROUNDS: u32 = 3;

/// A question to several peers; those that are not installed are left out.
pub(super) fn question(
    args: &Args,
    (name, asks): (&'static str, &'static str),
    peers: &[Peer],
    play: impl Fn(Peer) -> Result<Played> + 'static,
) -> Result<Question> {
    let mut question = Question::new(args, name, asks)?.compared_with(Peer::Rslock.name(), ROUNDS);
    let play = Rc::new(play);
    for peer in peers.iter().copied() {
        let play = Rc::clone(&play);
        match peer.missing() {
            Some(why) => question.left_out.push(why),
            None => question.add(peer.name(), move || play(peer)),
        }
    }
    Ok(question)
}

/// How long something is measured, in milliseconds; a quarter of it with `--quick`.
pub(super) fn length(args: &Args, ms: u64) -> Duration {
    Duration::from_millis(if args.quick { ms / 4 } else { ms })
}

#[allow(
    clippy::disallowed_methods,
    reason = "no executor runs here; what is measured runs elsewhere"
)]
pub(super) fn pause(length: Duration) {
    std::thread::sleep(length);
}
