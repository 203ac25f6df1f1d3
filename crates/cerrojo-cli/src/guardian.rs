//! A small process that outlives the runner for as long as it takes to end the command.
//!
//! | process | started by | is |
//! |---|---|---|
//! | runner | the user | `cerrojo run`: holds and renews the lock, owns signals and terminal |
//! | guardian | the runner | ends the command in time whatever befalls the runner, and then gives the lock back |
//! | gate | the guardian | waits until the lock is held, and becomes the command |
//!
//! Guardian and gate are this program once more, by a hidden first argument and without runtime, log or command line. They
//! are started before the lock is asked for: so the lease can be bound to runner, guardian and the command's group, and is
//! passed on early only when all of them are gone. What they say to each other are packets on two sockets: runner and
//! guardian ([`message::Order`], [`message::Report`]), runner and gate ([`message::Go`]).

mod ending;
mod gate;
mod give_back;
mod guarded;
mod message;
mod process;
mod timer;

use std::{
    ffi::{OsStr, OsString},
    io,
    os::unix::process::CommandExt,
    process::{Command, ExitCode},
};

pub(crate) use self::{
    ending::OnLost,
    guarded::Guarded,
    message::{Go, Lease, Order, Report},
};

/// The first argument of the guardian. The lock's name and the command's words follow.
const GUARDIAN: &str = "--guardian-of";
/// The first argument of the gate. The guardian's process id, the lock's name and the command's words follow.
const GATE: &str = "--gate-of";

/// Runs the process that a hidden first argument asks for; none: this is an ordinary start.
pub(crate) fn hidden() -> Option<ExitCode> {
    let mut words = std::env::args_os().skip(1);
    let first = words.next()?;
    match first.to_str()? {
        GUARDIAN => Some(process::main(&words.collect::<Vec<_>>())),
        GATE => Some(gate::main(&words.collect::<Vec<_>>())),
        _ => None,
    }
}

/// This program once more, also when its file was replaced in the meantime.
fn this_program(hidden: &str) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("cerrojo").arg(hidden);
    command
}

/// The words after the first, or what a hidden start without words deserves.
fn split(words: &[OsString]) -> io::Result<(&OsStr, &[OsString])> {
    let split = words.split_first().map(|(first, rest)| (first.as_os_str(), rest));
    split.ok_or_else(|| io::Error::other("this option is for `cerrojo run` itself"))
}
