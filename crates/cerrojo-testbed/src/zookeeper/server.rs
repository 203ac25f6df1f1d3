//! One ZooKeeper process of our own.

use std::{
    fs::{self, OpenOptions},
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::process::Signal;
use tempfile::TempDir;

use super::{ZooKeeperBuilder, java};
use crate::{
    Port,
    daemon::{Daemon, LIMIT},
    time::await_that,
};

/// How long a server may take to answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// The same where another look follows, so that one that is frozen does not hold up the others for long.
const LOOK_LIMIT: Duration = Duration::from_millis(300);

/// Whether a server is all there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Alone,
    /// One of an ensemble, and its id there.
    Member(usize),
}

/// Where a server listens.
#[derive(Debug)]
pub(super) struct Ports {
    /// For clients, or with TLS for the testbed alone.
    pub(super) plain: Port,
    pub(super) secure: Option<Port>,
}

/// A private ZooKeeper server with a folder of its own, on a port of its own, killed when dropped.
///
/// Its ticks are of 200 ms and sessions of up to a minute unless options say otherwise, and it takes any number of
/// connections. With TLS it has a second port, where [`command`](Self::command) works.
#[derive(Debug)]
pub struct ZooKeeperServer {
    /// Before the folder that it works in: fields are dropped in order.
    daemon: Daemon,
    folder: TempDir,
    ports: Ports,
    role: Role,
}

impl ZooKeeperServer {
    /// Starts one without further options.
    ///
    /// # Errors
    ///
    /// As [`ZooKeeperBuilder::start`].
    pub fn start() -> io::Result<Self> {
        Self::builder().start()
    }

    /// For one with options.
    #[must_use]
    pub fn builder() -> ZooKeeperBuilder {
        ZooKeeperBuilder::default()
    }

    pub(super) fn new(folder: TempDir, ports: Ports, role: Role) -> Self {
        Self { daemon: Daemon::default(), folder, ports, role }
    }

    /// Its port on 127.0.0.1, the same over restarts.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.client_port().number()
    }

    /// Its address, of the form `127.0.0.1:2181`.
    #[must_use]
    pub fn address(&self) -> String {
        self.client_port().address()
    }

    /// The folder of all its files.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Its process id, if it runs.
    #[must_use]
    pub fn id(&self) -> Option<u32> {
        self.daemon.id()
    }

    /// All that it has logged so far.
    ///
    /// # Errors
    ///
    /// When the log cannot be read.
    pub fn log(&self) -> io::Result<String> {
        Ok(String::from_utf8_lossy(&fs::read(self.log_path())?).into_owned())
    }

    /// Asks it one of its commands of four letters, such as `mntr` or `cons`.
    ///
    /// # Errors
    ///
    /// When it does not run, or does not answer within ten seconds.
    pub fn command(&self, word: &str) -> io::Result<String> {
        self.ask(word, ANSWER_LIMIT)
    }

    /// What it is: `standalone`, `leader` or `follower`.
    ///
    /// # Errors
    ///
    /// When it does not serve requests: it is down, frozen, or has no majority. It does not wait long for an answer.
    pub fn mode(&self) -> io::Result<String> {
        self.served("Mode: ")
    }

    /// Waits until it serves requests; a member of an ensemble does so while there is a majority.
    ///
    /// # Errors
    ///
    /// When it does not within a minute.
    pub fn await_serving(&self) -> io::Result<()> {
        await_that("a server that serves", LIMIT, || self.mode().map(|_| Some(())))
    }

    /// Stops it with SIGSTOP; returns once it stands still.
    ///
    /// # Errors
    ///
    /// When it does not run.
    pub fn freeze(&self) -> io::Result<()> {
        self.daemon.freeze()
    }

    /// Lets it run on.
    ///
    /// # Errors
    ///
    /// When it does not run.
    pub fn thaw(&self) -> io::Result<()> {
        self.daemon.thaw()
    }

    /// Kills it with SIGKILL, also when it is frozen. What it had acknowledged is there when it is started again.
    ///
    /// # Errors
    ///
    /// When it does not go.
    pub fn kill(&self) -> io::Result<()> {
        self.daemon.kill()
    }

    /// Ends it with SIGTERM.
    ///
    /// # Errors
    ///
    /// When it does not end.
    pub fn stop(&self) -> io::Result<()> {
        self.daemon.end(|process| process.signal(Signal::TERM))
    }

    /// Starts it again on the same port with its data; one that runs is [stopped](Self::stop) first. A member of an
    /// ensemble need not [serve](Self::await_serving) yet when this returns: there may be no majority.
    ///
    /// # Errors
    ///
    /// When it does not end, or as [`ZooKeeperBuilder::start`].
    pub fn restart(&self) -> io::Result<()> {
        self.stop()?;
        self.spawn()?;
        self.await_up()
    }

    /// As [`restart`](Self::restart), but with nothing in it; one that runs is killed first. A member of an ensemble
    /// gets the data from the others.
    ///
    /// # Errors
    ///
    /// As [`restart`](Self::restart).
    pub fn restart_empty(&self) -> io::Result<()> {
        self.kill()?;
        fs::remove_dir_all(self.folder().join("data/version-2"))?;
        self.restart()
    }

    /// Starts its process and waits for nothing.
    pub(super) fn spawn(&self) -> io::Result<()> {
        let log = OpenOptions::new().create(true).append(true).open(self.log_path())?;
        let configuration = self.folder().join("zoo.cfg");
        self.daemon.spawn(&mut java::command(self.folder(), &configuration, log))
    }

    /// Waits until it answers, and serves if it is alone.
    pub(super) fn await_up(&self) -> io::Result<()> {
        let up = self.daemon.await_answer("an answer of ZooKeeper", || self.is_up());
        up.map_err(|error| self.given_up(&error))
    }

    /// The epoch of its leader, or of the one before if nothing was written since.
    pub(super) fn epoch(&self) -> io::Result<u64> {
        let zxid = self.served("Zxid: 0x")?;
        Ok(u64::from_str_radix(&zxid, 16).map_err(io::Error::other)? >> 32)
    }

    fn is_up(&self) -> io::Result<bool> {
        // It opens its port for TLS after the other.
        TcpStream::connect(self.client_port().address())?;
        match self.role {
            Role::Alone => self.mode().map(|_| true),
            Role::Member(_) => Ok(self.ask("ruok", LOOK_LIMIT)? == "imok"),
        }
    }

    /// What stands behind this label in the answer to `srvr`.
    fn served(&self, label: &str) -> io::Result<String> {
        let said = self.ask("srvr", LOOK_LIMIT)?;
        let found = said.lines().find_map(|line| line.strip_prefix(label));
        found.map(str::to_owned).ok_or_else(|| io::Error::other(said.clone()))
    }

    fn ask(&self, word: &str, limit: Duration) -> io::Result<String> {
        let address = SocketAddr::from(([127, 0, 0, 1], self.ports.plain.number()));
        let mut stream = TcpStream::connect_timeout(&address, limit)?;
        stream.set_read_timeout(Some(limit))?;
        stream.write_all(word.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }

    /// Kills one that did not come up, and says why.
    fn given_up(&self, error: &io::Error) -> io::Error {
        drop(self.kill());
        io::Error::new(error.kind(), format!("{error}\n{}", self.log().unwrap_or_default()))
    }

    fn client_port(&self) -> &Port {
        self.ports.secure.as_ref().unwrap_or(&self.ports.plain)
    }

    fn log_path(&self) -> PathBuf {
        self.folder().join("log")
    }
}
