//! The embedded store: one SQLite file for all processes of one Linux machine. Fenced, first come first served.
//!
//! A store is a folder (mode 0700) with the database `locks.db` (0600), the file `turn` by which writers take
//! turns, and the sockets in `wake/` by which a release wakes the next waiter.
//!
//! What makes it right, in short (docs/backends/local.md has all of it):
//!
//! * Every holder is on this machine, so a reboot frees every lease, and TTLs run on `CLOCK_BOOTTIME`. A grant,
//!   renewal or release is a commit that survives SIGKILL but is not synced.
//! * Only the token counter must outlive a power loss: tokens are granted below a mark that was fully synced
//!   before, and after a reboot counting goes on above that mark.
//! * A lease is passed on before its TTL has ended only with proof that what it is bound to is gone.
//! * The state of waiting is in the store; a lost wake-up costs [`TICK`] at most.

mod backend;
mod config;
mod error;
mod folder;
mod lease;
mod machine;
mod process;
mod spin;
mod store;
mod wake;
mod worker;

pub use backend::Local;
pub use config::Builder;
pub use lease::LocalLease;
pub use wake::TICK;
