//! The signals that the runner passes on, and those that end a wait.

use std::{future::poll_fn, io, task::Poll};

use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind};

use crate::exit::Failure;

const CAUGHT: [Signal; 8] = [
    Signal::INT,
    Signal::TERM,
    Signal::HUP,
    Signal::QUIT,
    Signal::USR1,
    Signal::USR2,
    Signal::WINCH,
    Signal::TSTP,
];

/// Catches the signals of [`CAUGHT`] from its creation to the end of the program.
#[derive(Debug)]
pub(crate) struct Signals(Vec<(Signal, unix::Signal)>);

/// News of children, from its creation on.
///
/// By being caught SIGCHLD is also as usual again for what we start, should whoever started us have ignored it.
#[derive(Debug)]
pub(crate) struct Children(unix::Signal);

impl Signals {
    /// A signal that was ignored when the program started stays ignored, by the command too: so `nohup` works.
    pub(crate) fn catch() -> Result<Self, Failure> {
        let ignored = ignored();
        let wanted = CAUGHT.into_iter().filter(|signal| !contains(ignored, *signal));
        let caught: io::Result<Vec<_>> =
            wanted.map(|signal| Ok((signal, stream(signal)?))).collect();
        caught.map(Self).map_err(|error| Failure::system("cannot catch signals", error))
    }

    /// The next one. May be dropped at any time; what has arrived is not lost.
    pub(crate) async fn next(&mut self) -> Signal {
        poll_fn(|context| {
            for (signal, stream) in &mut self.0 {
                if stream.poll_recv(context).is_ready() {
                    return Poll::Ready(*signal);
                }
            }
            Poll::Pending
        })
        .await
    }
}

impl Children {
    pub(crate) fn watch() -> Result<Self, Failure> {
        let caught = stream(Signal::CHILD);
        caught.map(Self).map_err(|error| Failure::system("cannot catch signals", error))
    }

    /// Ready when something has happened to one. May be dropped at any time.
    pub(crate) async fn changed(&mut self) {
        if self.0.recv().await.is_none() {
            std::future::pending::<()>().await;
        }
    }
}

/// Whether it would end a program that does not care.
pub(crate) fn ends_a_wait(signal: Signal) -> bool {
    !matches!(signal, Signal::WINCH | Signal::TSTP)
}

fn stream(signal: Signal) -> io::Result<unix::Signal> {
    unix::signal(SignalKind::from_raw(signal.as_raw()))
}

/// The mask of ignored signals; none where the system does not tell.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

fn contains(mask: u64, signal: Signal) -> bool {
    let bit = signal.as_raw().checked_sub(1).and_then(|bit| u32::try_from(bit).ok());
    bit.and_then(|bit| mask.checked_shr(bit)).is_some_and(|rest| rest & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signal_n_is_bit_n_less_one() {
        assert!(contains(0b1, Signal::HUP));
        assert!(contains(0x4000, Signal::TERM));
        assert!(!contains(0x4000, Signal::INT));
        assert!(!contains(0, Signal::QUIT));
    }
}
