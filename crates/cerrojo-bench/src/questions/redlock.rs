//! Our lock in a majority of Redis servers beside other clients that can do that, on fresh servers with nothing else to do.

mod cycles;
mod handoff;
mod refused;

use cerrojo_bench::peer::Peer;

pub(super) use self::{
    cycles::{of_16_tasks, of_64_tasks, pinned},
    handoff::{by_processes, by_tasks},
    refused::ask as refused,
};
use super::redis::{length, pause, question, server};

const PEERS: [Peer; 3] = [Peer::Ours, Peer::Rslock, Peer::NodeRedlock];
