//! A real child process.

use std::{
    ffi::OsStr,
    io::{self, BufRead, BufReader, Write},
    os::fd::OwnedFd,
    process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec},
    process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions},
};

/// How long a killed process may take to be gone before that is an error.
const KILL_LIMIT: Duration = Duration::from_secs(10);

/// A child process that is spoken to by lines, killed and reaped when dropped.
///
/// It is signalled through a pidfd, so never a stranger who got its number. All waits are bounded.
#[derive(Debug)]
pub struct Process {
    child: Child,
    pidfd: OwnedFd,
    stdin: Option<ChildStdin>,
    lines: Receiver<io::Result<String>>,
}

impl Process {
    /// Starts `command` with pipes at its standard input and output.
    ///
    /// # Errors
    ///
    /// When it cannot be started.
    pub fn spawn(command: &mut Command) -> io::Result<Self> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let pidfd = rustix::process::pidfd_open(Pid::from_child(&child), PidfdFlags::empty())?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let (heard, lines) = channel();
        if let Some(stdout) = stdout {
            std::thread::Builder::new().spawn(move || listen(stdout, &heard))?;
        }
        Ok(Self { child, pidfd, stdin, lines })
    }

    /// Starts this very program once more, with these arguments.
    ///
    /// # Errors
    ///
    /// When it cannot be started.
    pub fn again<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> io::Result<Self> {
        Self::spawn(Command::new(std::env::current_exe()?).args(arguments))
    }

    /// Its process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a line.
    ///
    /// # Errors
    ///
    /// When it no longer reads, or its input was closed.
    pub fn say(&mut self, line: &str) -> io::Result<()> {
        let closed = || io::Error::from(io::ErrorKind::BrokenPipe);
        let stdin = self.stdin.as_mut().ok_or_else(closed)?;
        writeln!(stdin, "{line}")?;
        stdin.flush()
    }

    /// Ends its input.
    pub fn hang_up(&mut self) {
        self.stdin = None;
    }

    /// The next line that it says, without its end.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::TimedOut`] when it said none within `limit`, [`io::ErrorKind::UnexpectedEof`] when it will
    /// say no more.
    pub fn line(&self, limit: Duration) -> io::Result<String> {
        match self.lines.recv_timeout(limit) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => Err(late("says nothing", self.id(), limit)),
            Err(RecvTimeoutError::Disconnected) => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Sends it a line and hears the next one.
    ///
    /// # Errors
    ///
    /// As [`Process::say`] and [`Process::line`].
    pub fn ask(&mut self, line: &str, limit: Duration) -> io::Result<String> {
        self.say(line)?;
        self.line(limit)
    }

    /// All that it still says until it ends its output; `limit` is for each line.
    ///
    /// # Errors
    ///
    /// As [`Process::line`], but the end is none.
    pub fn rest(&self, limit: Duration) -> io::Result<Vec<String>> {
        let mut said = Vec::new();
        loop {
            match self.line(limit) {
                Ok(line) => said.push(line),
                Err(end) if end.kind() == io::ErrorKind::UnexpectedEof => return Ok(said),
                Err(error) => return Err(error),
            }
        }
    }

    /// Stops it with SIGSTOP; returns once it stands still.
    ///
    /// # Errors
    ///
    /// When it has ended.
    pub fn freeze(&self) -> io::Result<()> {
        self.signal(Signal::STOP)?;
        let stopped = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        let pid = Pid::from_child(&self.child);
        match rustix::process::waitid(WaitId::Pid(pid), stopped)? {
            Some(status) if status.stopped() => Ok(()),
            _ => Err(io::Error::other(format!("process {pid:?} ended instead of being frozen"))),
        }
    }

    /// Lets it run on with SIGCONT.
    ///
    /// # Errors
    ///
    /// When it has been reaped.
    pub fn thaw(&self) -> io::Result<()> {
        self.signal(Signal::CONT)
    }

    /// Waits until it ends, and reaps it.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::TimedOut`] when it still runs after `limit`.
    pub fn wait(&mut self, limit: Duration) -> io::Result<ExitStatus> {
        if self.ends_within(limit)? {
            self.child.wait()
        } else {
            Err(late("still runs", self.id(), limit))
        }
    }

    /// Kills it with SIGKILL and reaps it, also when it is frozen. What it said can still be heard.
    ///
    /// # Errors
    ///
    /// When it cannot be signalled or does not go.
    pub fn kill(&mut self) -> io::Result<ExitStatus> {
        self.child.kill()?;
        self.wait(KILL_LIMIT)
    }

    /// Kills it after `delay`, unless it ended before.
    ///
    /// # Errors
    ///
    /// As [`Process::kill`].
    pub fn kill_after(&mut self, delay: Duration) -> io::Result<ExitStatus> {
        self.ends_within(delay)?;
        self.kill()
    }

    pub(crate) fn ends_within(&self, limit: Duration) -> io::Result<bool> {
        ends_within(&self.pidfd, limit)
    }

    pub(crate) fn signal(&self, signal: Signal) -> io::Result<()> {
        Ok(rustix::process::pidfd_send_signal(&self.pidfd, signal)?)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Without effect on one that was reaped; an error has nobody to go to.
        drop(self.child.kill());
        drop(self.wait(KILL_LIMIT));
    }
}

/// Whether the process behind a pidfd, a child or not, ends within `limit`.
pub(crate) fn ends_within(pidfd: &OwnedFd, limit: Duration) -> io::Result<bool> {
    let limit = Timespec::try_from(limit).map_err(io::Error::other)?;
    let mut ended = [PollFd::new(pidfd, PollFlags::IN)];
    loop {
        match rustix::event::poll(&mut ended, Some(&limit)) {
            Err(rustix::io::Errno::INTR) => {}
            ready => return Ok(ready? > 0),
        }
    }
}

fn listen(stdout: ChildStdout, heard: &Sender<io::Result<String>>) {
    for line in BufReader::new(stdout).lines() {
        if heard.send(line).is_err() {
            return;
        }
    }
}

fn late(what: &str, id: u32, limit: Duration) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("process {id} {what} after {limit:?}"))
}
