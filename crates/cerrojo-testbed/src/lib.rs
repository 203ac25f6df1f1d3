//! Starts, freezes, kills and crashes real things for tests. Knows nothing of cerrojo.
//!
//! | | |
//! |---|---|
//! | [`Process`] | a real child: SIGKILL, SIGSTOP, SIGCONT, talk by lines, every wait bounded |
//! | [`PowerLoss`] | what a power loss leaves of a folder's files |
//! | [`ClockSkew`] | a wall clock that is wrong for one process, and changes while it runs |
//! | [`Disk`] | a small filesystem of its own: full, read-only |
//!
//! Linux only. The shims need a C compiler (`cc`).
#![cfg(target_os = "linux")]

mod disk;
mod process;
mod shim;

pub use disk::Disk;
pub use process::Process;
pub use shim::{ClockSkew, PowerLoss};
