//! Redis, one logical server: **approximate** locks, for efficiency.
//!
//! A server that is paused, loses what it had acknowledged, or fails over to a replica that lacks a grant can give a lock
//! to two holders; so can a pause of the holder or a jump of the server's clock. Where a double run would corrupt data, take a fenced
//! store. What this one does promise (docs/backends/redis.md has all of it):
//!
//! * Acquire, renew and release are one script each: one atomic step, one round trip, checked for the owner.
//!   No key of ours is ever without an expiry.
//! * Waiters stand in a line in the server, in the order in which they came, and ask seldom: a release makes the first of them
//!   the owner and tells it by a push, in the same script.
//! * One connection for everything; every call has a time limit.
//!
//! The single-server lock is the one of the Redis documentation (SET with NX and PX, and a release that compares); the
//! line with its provisional hand-over is our own.

pub(super) mod answer;
pub(super) mod backend;
pub(super) mod config;
pub(super) mod dial;
pub(super) mod ear;
pub(super) mod error;
pub(super) mod format;
pub(super) mod info;
mod lease;
pub(super) mod link;
mod replicas;
pub(super) mod scan;
pub(super) mod script;

pub use backend::{Redis, TICK};
pub use config::Builder;
pub use format::Format;
pub use lease::RedisLease;
