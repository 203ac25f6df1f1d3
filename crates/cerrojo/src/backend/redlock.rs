//! Redlock, a majority of independent Redis servers: **approximate** locks, for efficiency, that go on when a node dies.
//!
//! The algorithm is the one of the Redis documentation ("Distributed Locks with Redis"), with what it asks of operators
//! done here, and RedLock.NET is the model for what a user gets. It excludes as long as clocks run at about the same rate,
//! pauses are shorter than the validity that is left, and no majority forgets a grant; where a double run would
//! corrupt data, take a fenced store. In short (docs/backends/redlock.md has all of it):
//!
//! * All nodes are asked at once, and the majority answers: a node that is dead costs its time limit at most.
//! * A renewal needs a majority that still has the lock. It never makes a lost majority whole; to a minority that has
//!   forgotten the lock it is given back afterwards.
//! * A node that may have been restarted has no vote until all that it may have forgotten has ended.
//! * A refusal says why, with each node's reason.

mod backend;
mod ballot;
mod config;
mod inspect;
mod lease;
mod node;
mod quarantine;
mod script;
mod summary;

pub use backend::Redlock;
pub use config::Builder;
pub use lease::RedlockLease;
pub use summary::{Failure, Status, Summary};
