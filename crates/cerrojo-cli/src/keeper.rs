//! The process in the background that keeps a lock for as long as another process runs: `cerrojo acquire --pid`.
//!
//! It is this program once more, started with [`ARGUMENT`], a socket as its stdin and the pidfd of the watched process
//! as its stdout. It is told on the socket what to acquire, because that may hold a password, answers there, and keeps
//! the lock once it has heard that the answer was delivered. If it hears nothing, it gives everything back.

mod line;
mod process;
mod watch;

use std::{
    io,
    os::unix::{net::UnixStream, process::CommandExt},
    process::{Child, Command, ExitCode, Stdio},
};

use serde::{Deserialize, Serialize};

use self::line::Line;
use crate::{
    args::{AcquireArgs, Asking},
    exit::Failure,
    output::Output,
};

/// The first argument of a keeper. The lock's name and the process id follow, for people who list processes.
const ARGUMENT: &str = "--keeper-of";

/// Runs as a keeper if started as one.
pub(crate) fn hidden() -> Option<ExitCode> {
    let first = std::env::args_os().nth(1)?;
    (first == ARGUMENT).then(process::main)
}

/// What a keeper is to acquire and keep.
#[derive(Deserialize, Serialize)]
pub(crate) struct Order {
    store: String,
    name: String,
    ttl_ms: u64,
    asking: Asking,
    pid: i32,
    output: Output,
}

/// What came of it: a line for stdout when the code is 0, else one for stderr.
#[derive(Deserialize, Serialize)]
pub(crate) struct Answer {
    pub(crate) line: String,
    pub(crate) code: u8,
}

impl Order {
    pub(crate) fn new(args: AcquireArgs, pid: i32, store: &str, output: Output) -> Self {
        Self {
            store: store.to_owned(),
            name: args.name.to_string(),
            ttl_ms: crate::output::millis(args.ttl.get()),
            asking: args.asking,
            pid,
            output,
        }
    }
}

/// A keeper, as seen by who started it.
pub(crate) struct Keeper {
    line: Line,
    /// Nobody waits for it: it outlives this program.
    _process: Child,
}

impl Keeper {
    /// Starts a keeper that watches the process of the order, which has to run.
    pub(crate) fn start(order: &Order) -> Result<Self, Failure> {
        let pidfd = watch::open(order.pid)?;
        let (ours, theirs) = UnixStream::pair().map_err(unstarted)?;
        let process = Command::new("/proc/self/exe")
            .arg0("cerrojo")
            .args([ARGUMENT, &order.name, &order.pid.to_string()])
            .stdin(Stdio::from(std::os::fd::OwnedFd::from(theirs)))
            .stdout(Stdio::from(pidfd))
            .stderr(Stdio::null())
            .spawn()
            .map_err(unstarted)?;
        let line = Line::new(ours).map_err(unstarted)?;
        Ok(Self { line, _process: process })
    }

    /// Tells it what to do and waits for the answer.
    pub(crate) async fn obey(&mut self, order: &Order) -> Result<Answer, Failure> {
        self.line.send(order).await.map_err(ended)?;
        let answer = self.line.receive().await.map_err(ended)?;
        answer.ok_or_else(|| ended(io::ErrorKind::UnexpectedEof.into()))
    }

    /// Tells it that the answer was delivered.
    pub(crate) async fn confirm(&mut self) -> Result<(), Failure> {
        self.line.send(&true).await.map_err(ended)
    }

    /// Makes it give back what it has or asks for, and waits until it has ended.
    pub(crate) async fn dismiss(self) {
        self.line.close().await;
    }
}

fn unstarted(error: io::Error) -> Failure {
    Failure::system("cannot start the process that keeps the lock", error)
}

fn ended(error: io::Error) -> Failure {
    Failure::system("the process that was to keep the lock has ended", error)
}
