//! One etcd server of our own.

use std::{
    fs::{self, OpenOptions},
    io,
    path::{Path, PathBuf},
    process::Command,
};

use rustix::process::Signal;
use tempfile::TempDir;

use super::{
    EtcdBuilder,
    ctl::{self, Access},
    http,
};
use crate::{Certificates, Port, daemon::Daemon, need::find};

/// A private `etcd` with a folder of its own, on ports of its own, killed when dropped.
///
/// Beside the port for clients it has one for the testbed, plain whatever the options say. Its write-ahead log takes
/// 128 MB of room on the disk from the start, most of it never written.
#[derive(Debug)]
pub struct EtcdServer {
    /// Before the folder that it works in: fields are dropped in order.
    daemon: Daemon,
    folder: TempDir,
    ports: Ports,
    arguments: Vec<String>,
    access: Access,
    /// They live as long as it may be started again.
    _certificates: Option<Certificates>,
}

impl EtcdServer {
    /// The password of `root` where [users are demanded](EtcdBuilder::auth).
    pub const ROOT_PASSWORD: &str = "testbed";

    /// Starts one without further options.
    ///
    /// # Errors
    ///
    /// As [`EtcdBuilder::start`].
    pub fn start() -> io::Result<Self> {
        Self::builder().start()
    }

    /// For one with options.
    #[must_use]
    pub fn builder() -> EtcdBuilder {
        EtcdBuilder::default()
    }

    pub(super) fn new(
        ports: Ports,
        arguments: Vec<String>,
        certificates: Option<Certificates>,
        access: Access,
    ) -> io::Result<Self> {
        let folder = tempfile::Builder::new().prefix("testbed-etcd-").tempdir()?;
        let daemon = Daemon::default();
        Ok(Self { daemon, folder, ports, arguments, access, _certificates: certificates })
    }

    /// Its port on 127.0.0.1 for clients, the same over restarts.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.ports.client.number()
    }

    /// Its address for clients, of the form `127.0.0.1:2379`.
    #[must_use]
    pub fn address(&self) -> String {
        self.ports.client.address()
    }

    /// Its folder, with its log and its data.
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

    /// Runs `etcdctl` with these arguments at this server, as `root` where users are demanded; what it says.
    ///
    /// `--endpoints` and `--user` as arguments of their own take the place of that; an empty user is nobody.
    ///
    /// # Errors
    ///
    /// When it fails, with what it says of that; most commands do when there is no answer for 5 s, all after 60 s.
    pub fn etcdctl(&self, words: &[&str]) -> io::Result<String> {
        ctl::run(&self.etcdctl_command(words)?)
    }

    /// The same as a command not run yet, for one that goes on such as `lock` or `watch`.
    ///
    /// # Errors
    ///
    /// When `etcdctl` is missing.
    pub fn etcdctl_command(&self, words: &[&str]) -> io::Result<Command> {
        ctl::command(&self.testbed_address(), &self.access, words)
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

    /// Kills it with SIGKILL, also when it is frozen.
    ///
    /// # Errors
    ///
    /// When it does not go.
    pub fn kill(&self) -> io::Result<()> {
        self.daemon.kill()
    }

    /// Ends it in order: a leader hands over to another first.
    ///
    /// # Errors
    ///
    /// When it does not end.
    pub fn stop(&self) -> io::Result<()> {
        self.daemon.end(|process| process.signal(Signal::TERM))
    }

    /// Starts it again on the same ports with its data; one that runs is [stopped](Self::stop) first. Returns once it
    /// serves clients, for which a majority of its cluster must run.
    ///
    /// # Errors
    ///
    /// When it does not end, or as [`EtcdBuilder::start`].
    pub fn restart(&self) -> io::Result<()> {
        self.stop()?;
        self.spawn()?;
        self.await_health()
    }

    pub(super) fn spawn(&self) -> io::Result<()> {
        self.daemon.spawn(&mut self.invocation()?)
    }

    /// Waits until it serves clients: it knows a leader, and all that the others have agreed on.
    pub(super) fn await_health(&self) -> io::Result<()> {
        self.await_answer("a healthy etcd", || {
            let said = http::get(&self.testbed_address(), "/health")?;
            Ok(said.contains("true"))
        })
    }

    /// Waits until it serves the other members.
    pub(super) fn await_peer(&self) -> io::Result<()> {
        self.await_answer("an etcd that serves its peers", || {
            let said = http::get(&self.ports.peer.address(), "/version")?;
            Ok(said.contains("etcdserver"))
        })
    }

    pub(super) fn status(&self) -> io::Result<Status> {
        Status::parse(&http::post(&self.testbed_address(), "/v3/maintenance/status")?)
    }

    pub(super) fn testbed_address(&self) -> String {
        self.ports.testbed.address()
    }

    fn invocation(&self) -> io::Result<Command> {
        let missing = || io::Error::new(io::ErrorKind::NotFound, "etcd is not installed");
        let log = OpenOptions::new().create(true).append(true).open(self.log_path())?;
        let mut command = Command::new(find("etcd").ok_or_else(missing)?);
        // It would take every ETCD_* for an option.
        command.env_clear().stderr(log).current_dir(self.folder());
        command.args(["--data-dir", "data"]).args(&self.arguments);
        Ok(command)
    }

    fn await_answer(&self, what: &str, look: impl Fn() -> io::Result<bool>) -> io::Result<()> {
        self.daemon.await_answer(what, look).map_err(|error| self.with_log(&error))
    }

    fn with_log(&self, error: &io::Error) -> io::Error {
        io::Error::new(error.kind(), format!("{error}\n{}", self.log().unwrap_or_default()))
    }

    fn log_path(&self) -> PathBuf {
        self.folder().join("log")
    }
}

/// Where one listens.
#[derive(Debug)]
pub(super) struct Ports {
    client: Port,
    peer: Port,
    testbed: Port,
}

impl Ports {
    pub(super) fn reserve() -> io::Result<Self> {
        let (client, peer) = (Port::reserve()?, Port::reserve()?);
        Ok(Self { client, peer, testbed: Port::reserve()? })
    }

    /// Its entry in the list of all members.
    pub(super) fn member(&self, index: usize) -> String {
        format!("{}=http://{}", name(index), self.peer.address())
    }

    pub(super) fn flags(&self, index: usize, has_tls: bool) -> Vec<(String, String)> {
        let scheme = if has_tls { "https" } else { "http" };
        let client = format!("{scheme}://{}", self.client.address());
        let peer = format!("http://{}", self.peer.address());
        let flag = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        vec![
            flag("name", &name(index)),
            flag("listen-client-urls", &format!("{client},http://{}", self.testbed.address())),
            flag("advertise-client-urls", &client),
            flag("listen-peer-urls", &peer),
            flag("initial-advertise-peer-urls", &peer),
        ]
    }
}

fn name(index: usize) -> String {
    format!("node-{index}")
}

/// What one says of the cluster.
#[derive(Clone, Copy, Debug)]
pub(super) struct Status {
    pub(super) member: u64,
    pub(super) term: u64,
    /// Whom it takes for the leader.
    pub(super) leader: Option<u64>,
}

impl Status {
    fn parse(json: &str) -> io::Result<Self> {
        let missing = || io::Error::new(io::ErrorKind::InvalidData, json.to_owned());
        let known = |name: &str| http::number(json, name).ok_or_else(missing);
        let leader = http::number(json, "leader");
        Ok(Self { member: known("member_id")?, term: known("raftTerm")?, leader })
    }
}

/// A path as an option's value.
pub(super) fn spelled(path: &Path) -> String {
    path.display().to_string()
}
