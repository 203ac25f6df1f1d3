//! PostgreSQL: **fenced** locks in the database that you already run.
//!
//! A lock table with a token. What is promised (docs/backends/postgres.md has all of it):
//!
//! * Each operation is one statement in one transaction: one round trip, one commit. It is decided by the server's clock alone.
//! * Every grant locks the name's row first, and takes its token under that lock: the WAL timeline in the high bits, one sequence in the low ones.
//!   Tokens rise over expiry, pruning, crashes, promotion of a replica and restore to a point in time.
//! * Waiters stand in a line in the database. A release makes the first of them the owner and notifies it, in the same commit.
//! * Three connections for any number of locks and waiters; requests that are due together travel together.
//! * [`Postgres::transaction`]: a transaction of the user's that only the holder can make, whatever the clocks say.
//!
//! The table with an owner and an expiry is folklore; the line with its provisional hand-over, the tokens and the guarded transaction are
//! our own.

mod answer;
mod backend;
mod batch;
mod config;
mod dial;
mod error;
mod greeting;
mod guarded;
mod holders;
mod lease;
mod listen;
mod passfile;
mod queue;
mod schema;
mod server_clock;
mod sweep;
mod tls;
mod worker;

pub use backend::Postgres;
pub use config::{Builder, Listen};
pub use guarded::GuardedTransaction;
pub use lease::PostgresLease;
