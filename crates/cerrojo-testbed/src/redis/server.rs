//! One `redis-server` process of our own.

use std::{
    fs::{self, File, OpenOptions},
    io,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use tempfile::TempDir;

use super::{RedisBuilder, RedisClient, Reply, TESTBED, builder::Role};
use crate::{Certificates, ClockSkew, Port, PowerLoss, daemon::Daemon, time::await_that};

/// How long a server may take to synchronize.
const LIMIT: Duration = Duration::from_secs(20);

/// A private `redis-server` with a folder of its own, on a port of its own, killed when dropped.
///
/// Unless options say otherwise it keeps nothing when it is killed, and demands no password. It knows one more
/// user, `testbed`, by which [`command`](RedisServer::command) works whatever the options say, through a unix socket.
#[derive(Debug)]
pub struct RedisServer {
    daemon: Daemon,
    port: Port,
    folder: TempDir,
    role: Role,
    /// They live as long as it may be started again.
    _certificates: Option<Certificates>,
    clock: Option<ClockSkew>,
    power: Option<PowerLoss>,
}

impl RedisServer {
    /// Starts one without further options.
    ///
    /// # Errors
    ///
    /// As [`RedisBuilder::start`].
    pub fn start() -> io::Result<Self> {
        Self::builder().start()
    }

    /// For one with options.
    #[must_use]
    pub fn builder() -> RedisBuilder {
        RedisBuilder::default()
    }

    pub(super) fn new(folder: TempDir, port: Port, role: Role) -> Self {
        let daemon = Daemon::default();
        Self { daemon, port, folder, role, _certificates: None, clock: None, power: None }
    }

    pub(super) fn with(
        self,
        certificates: Option<Certificates>,
        clock: Option<ClockSkew>,
        power: Option<PowerLoss>,
    ) -> Self {
        Self { _certificates: certificates, clock, power, ..self }
    }

    pub(super) fn started(self) -> io::Result<Self> {
        self.start_process()?;
        Ok(self)
    }

    /// Its port on 127.0.0.1, the same over restarts.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// Its address, of the form `127.0.0.1:6379`.
    #[must_use]
    pub fn address(&self) -> String {
        self.port.address()
    }

    /// Its unix socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.path("redis.sock")
    }

    /// Its process id, if it runs.
    #[must_use]
    pub fn id(&self) -> Option<u32> {
        self.daemon.id()
    }

    /// Runs one command on a new connection.
    ///
    /// # Errors
    ///
    /// As [`RedisClient::command`], and when it does not run.
    pub fn command(&self, words: &[&str]) -> io::Result<Reply> {
        self.client()?.command(words)
    }

    /// A connection through the unix socket, as the user `testbed`, who may do everything.
    ///
    /// # Errors
    ///
    /// When it does not run or does not answer.
    pub fn client(&self) -> io::Result<RedisClient> {
        RedisClient::connect(&self.socket(), TESTBED)
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

    /// Starts it again on the same port with its data.
    ///
    /// One that runs saves all and ends in order first. One that was killed has what its options
    /// (`appendonly`, `save`) or its last restart had kept.
    ///
    /// # Errors
    ///
    /// When it does not end, or as [`RedisBuilder::start`].
    pub fn restart(&self) -> io::Result<()> {
        self.shut_down()?;
        self.start_process()
    }

    /// Starts it again on the same port with nothing in it; one that runs is killed first.
    ///
    /// # Errors
    ///
    /// When it does not end, or as [`RedisBuilder::start`].
    pub fn restart_empty(&self) -> io::Result<()> {
        self.kill()?;
        fs::remove_dir_all(self.data())?;
        fs::create_dir(self.data())?;
        self.power.as_ref().map_or(Ok(()), PowerLoss::forget)?;
        self.start_process()
    }

    /// Kills it as a power loss does: only what it had synced to the disk is there when it is started again.
    ///
    /// # Errors
    ///
    /// When it was not started with [`RedisBuilder::power_loss`], or its files cannot be put back.
    pub fn lose_power(&self) -> io::Result<()> {
        let power = self.power.as_ref().ok_or_else(|| no_shim("power_loss"))?;
        self.kill()?;
        power.restore()
    }

    /// Sets its wall clock that many nanoseconds ahead of the right time (behind, if negative), while it runs.
    ///
    /// # Errors
    ///
    /// When it was not started with [`RedisBuilder::clock_skew`].
    pub fn set_clock_nanos(&self, ahead: i64) -> io::Result<()> {
        self.clock.as_ref().ok_or_else(|| no_shim("clock_skew"))?.set_nanos(ahead)
    }

    /// Makes it a replica of `master`, also over restarts; returns once it has its data and is told of each change.
    ///
    /// # Errors
    ///
    /// When one of the two does not run, or it takes too long.
    pub fn replica_of(&self, master: &Self) -> io::Result<()> {
        self.command(&["REPLICAOF", "127.0.0.1", &master.port().to_string()])?;
        self.command(&["CONFIG", "REWRITE"])?;
        self.await_sync(master)
    }

    /// Makes a replica a master of its own, also over restarts.
    ///
    /// # Errors
    ///
    /// When it does not run.
    pub fn promote(&self) -> io::Result<()> {
        self.command(&["REPLICAOF", "NO", "ONE"])?;
        self.command(&["CONFIG", "REWRITE"]).map(drop)
    }

    /// Waits until this replica has all that `master` has now.
    ///
    /// # Errors
    ///
    /// When one of the two does not run, or it takes too long.
    pub fn await_sync(&self, master: &Self) -> io::Result<()> {
        let wanted = offset(&master.info("master_repl_offset")?)?;
        await_that("a replica in sync", LIMIT, || {
            let is_linked = self.info("master_link_status")? == "up";
            let has = offset(&self.info("slave_repl_offset")?)?;
            Ok((is_linked && has >= wanted).then_some(()))
        })
    }

    /// One field of `INFO all`, such as `used_memory` or `cmdstat_get`.
    ///
    /// # Errors
    ///
    /// When it does not run, or has no such field.
    pub fn info(&self, field: &str) -> io::Result<String> {
        let all = self.command(&["INFO", "all"])?.to_string();
        let mut fields = all.lines().filter_map(|line| line.split_once(':'));
        let found = fields.find(|(name, _)| *name == field);
        let missing = || io::Error::new(io::ErrorKind::NotFound, format!("no {field} in INFO"));
        Ok(found.ok_or_else(missing)?.1.to_owned())
    }

    fn shut_down(&self) -> io::Result<()> {
        self.daemon.end(|_| {
            // It ends instead of answering.
            drop(self.command(&["SHUTDOWN", "SAVE"]));
            Ok(())
        })
    }

    fn start_process(&self) -> io::Result<()> {
        let answers = || Ok(self.command(&["PING"])? == "PONG");
        let started = self.daemon.start(&mut self.invocation()?, answers);
        started.map_err(|error| self.with_log(&error))
    }

    fn invocation(&self) -> io::Result<Command> {
        let mut command = Command::new("redis-server");
        command.arg(self.path("redis.conf")).stderr(self.log()?);
        if self.role == Role::Sentinel {
            command.arg("--sentinel");
        }
        if let Some(clock) = &self.clock {
            clock.apply(&mut command);
        }
        if let Some(power) = &self.power {
            power.apply(&mut command);
        }
        Ok(command)
    }

    fn log(&self) -> io::Result<File> {
        OpenOptions::new().create(true).append(true).open(self.path("log"))
    }

    fn with_log(&self, error: &io::Error) -> io::Error {
        let log = fs::read_to_string(self.path("log")).unwrap_or_default();
        io::Error::new(error.kind(), format!("{error}\n{log}"))
    }

    fn data(&self) -> PathBuf {
        self.path("data")
    }

    fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.folder.path().join(name)
    }
}

fn no_shim(option: &str) -> io::Error {
    io::Error::other(format!("the server was started without {option}"))
}

fn offset(text: &str) -> io::Result<u64> {
    text.parse().map_err(io::Error::other)
}
