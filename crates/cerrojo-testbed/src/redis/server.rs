//! One `redis-server` process of our own.

use std::{
    fs::{self, File, OpenOptions},
    io,
    path::{Path, PathBuf},
    process::Command,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tempfile::TempDir;

use super::{RedisClient, Reply};
use crate::{Port, Process, time::await_that};

/// How long a server may take to start, stop or synchronize.
const LIMIT: Duration = Duration::from_secs(20);

/// The user by which the testbed speaks to its servers and they to each other, and its password: so that a test may
/// give the default user any password or none.
const TESTBED: (&str, &str) = ("testbed", "testbed");

/// The options of a server that is not started yet.
#[derive(Debug, Default)]
pub struct RedisBuilder {
    options: Vec<(String, String)>,
}

impl RedisBuilder {
    /// Adds a line to the configuration. Later lines win. The value stands there as it is: quote it if it has spaces
    /// that belong to it.
    #[must_use]
    pub fn option(mut self, name: &str, value: &str) -> Self {
        self.options.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Demands this password of the default user.
    #[must_use]
    pub fn password(self, password: &str) -> Self {
        self.option("requirepass", password)
    }

    /// Adds an ACL user, with rules as `ACL SETUSER` takes them: `on >secret ~jobs:* &* +@all`.
    #[must_use]
    pub fn user(self, name: &str, rules: &str) -> Self {
        self.option("user", &format!("{name} {rules}"))
    }

    /// Starts it, and waits until it answers.
    ///
    /// # Errors
    ///
    /// When `redis-server` is missing, ends, or does not answer in time; the error shows its log.
    pub fn start(self) -> io::Result<RedisServer> {
        let folder = tempfile::Builder::new().prefix("testbed-redis-").tempdir()?;
        let server = RedisServer { port: Port::reserve()?, folder, process: Mutex::default() };
        fs::create_dir(server.data())?;
        fs::write(server.path("redis.conf"), self.configuration(&server))?;
        server.start_process()?;
        Ok(server)
    }

    fn configuration(&self, server: &RedisServer) -> String {
        let (user, password) = TESTBED;
        let mut lines = vec![
            "bind 127.0.0.1".to_owned(),
            format!("port {}", server.port()),
            format!("unixsocket {}", server.socket().display()),
            format!("dir {}", server.data().display()),
            format!("logfile {}", server.path("log").display()),
            "save \"\"".to_owned(),
            "repl-diskless-sync-delay 0".to_owned(),
            format!("user {user} on >{password} ~* &* +@all"),
            format!("masteruser {user}\nmasterauth {password}"),
        ];
        lines.extend(self.options.iter().map(|(name, value)| format!("{name} {value}")));
        lines.join("\n") + "\n"
    }
}

/// A private `redis-server` with a folder of its own, on a port of its own, killed when dropped.
///
/// Unless options say otherwise it keeps nothing when it is killed, and demands no password. It knows one more
/// user, `testbed`, by which [`command`](RedisServer::command) works whatever the options say, through a unix socket.
#[derive(Debug)]
pub struct RedisServer {
    process: Mutex<Option<Process>>,
    port: Port,
    folder: TempDir,
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
        self.process().as_ref().map(Process::id)
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
        self.process().as_ref().ok_or_else(not_running)?.freeze()
    }

    /// Lets it run on.
    ///
    /// # Errors
    ///
    /// When it does not run.
    pub fn thaw(&self) -> io::Result<()> {
        self.process().as_ref().ok_or_else(not_running)?.thaw()
    }

    /// Kills it with SIGKILL, also when it is frozen.
    ///
    /// # Errors
    ///
    /// When it does not go.
    pub fn kill(&self) -> io::Result<()> {
        self.process().take().map_or(Ok(()), |mut process| process.kill().map(drop))
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
        self.start_process()
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
        let Some(mut process) = self.process().take() else { return Ok(()) };
        process.thaw()?;
        // It ends instead of answering.
        drop(self.command(&["SHUTDOWN", "SAVE"]));
        process.wait(LIMIT).map(drop)
    }

    fn start_process(&self) -> io::Result<()> {
        let mut command = Command::new("redis-server");
        command.arg(self.path("redis.conf")).stderr(self.log()?);
        let process = Process::spawn(&mut command)?;
        self.await_answer(&process).map_err(|error| self.with_log(&error))?;
        *self.process() = Some(process);
        Ok(())
    }

    fn await_answer(&self, process: &Process) -> io::Result<()> {
        await_that("an answer of redis-server", LIMIT, || {
            if process.ends_within(Duration::ZERO)? {
                return Ok(Some(Err(io::Error::other("redis-server ended"))));
            }
            Ok((self.command(&["PING"])? == "PONG").then_some(Ok(())))
        })?
    }

    fn log(&self) -> io::Result<File> {
        OpenOptions::new().create(true).append(true).open(self.path("log"))
    }

    fn with_log(&self, error: &io::Error) -> io::Error {
        let log = fs::read_to_string(self.path("log")).unwrap_or_default();
        io::Error::new(error.kind(), format!("{error}\n{log}"))
    }

    fn process(&self) -> MutexGuard<'_, Option<Process>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn data(&self) -> PathBuf {
        self.path("data")
    }

    fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.folder.path().join(name)
    }
}

fn offset(text: &str) -> io::Result<u64> {
    text.parse().map_err(io::Error::other)
}

fn not_running() -> io::Error {
    io::Error::other("the server does not run")
}
