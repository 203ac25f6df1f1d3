//! Our lock in PostgreSQL beside SQL alone and another library, all on one private server that syncs each commit.

mod cycles;
mod handoff;
mod pgbench;
mod server;
mod transaction;

use std::rc::Rc;

use cerrojo_bench::peer::Peer;

use self::server::{Database, Server};
pub(super) use self::{
    cycles::{of_1_task, of_16_tasks, of_64_tasks},
    handoff::{by_processes, by_tasks, held_by_processes},
    transaction::ask as transaction,
};
use super::redis::{length, pause};
use crate::{
    Result,
    args::Args,
    harness::{Played, Question},
};

const ROUNDS: u32 = 4;

/// A question to several peers, each in a fresh database of one server; those that are not installed are left out.
fn question(
    args: &Args,
    (name, asks): (&'static str, &'static str),
    (server, peers): (&Rc<Server>, &[Peer]),
    play: impl Fn(Peer, &Database) -> Result<Played> + 'static,
) -> Result<Question> {
    let mut question = Question::new(args, name, asks)?.compared_with(Peer::Upsert.name(), ROUNDS);
    let play = Rc::new(play);
    for peer in peers.iter().copied() {
        let (play, server) = (Rc::clone(&play), Rc::clone(server));
        match peer.missing() {
            Some(why) => question.left_out.push(why),
            None => question.add(peer.name(), move || play(peer, &server.database()?)),
        }
    }
    Ok(question)
}
