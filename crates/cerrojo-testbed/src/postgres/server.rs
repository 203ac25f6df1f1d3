//! One PostgreSQL server of our own.

use std::{
    fs::{self, OpenOptions},
    io,
    path::{Path, PathBuf},
    process::Command,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use rustix::process::Signal;
use tempfile::TempDir;

use super::{
    APP, PostgresBackup, PostgresBuilder, TESTBED, account, postmaster::Postmaster, psql::Psql, url,
};
use crate::{ClockSkew, Port, time::await_that};

/// How long a server may take to start, to follow or to be promoted.
const LIMIT: Duration = Duration::from_secs(60);

/// Where a server is.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) folder: TempDir,
    pub(super) data: PathBuf,
    pub(super) port: Port,
}

/// A private PostgreSQL server with a folder of its own, on a port of its own, killed with all its processes when
/// dropped.
///
/// It has a database `app`, and a superuser `postgres` with a random password, asked for over TCP and through the unix
/// socket. One more superuser, `testbed`, is for the testbed itself: [`superuser_sql`](Self::superuser_sql) works
/// whatever the options say. Where we are root it runs as the user `postgres`, as it refuses to be root.
///
/// Servers of one process are copies of one cluster: they share their password and, which no two others do, their
/// system identifier. [Fast](PostgresBuilder::fast) ones are copies of another.
#[derive(Debug)]
pub struct PostgresServer {
    /// Before the folder that it works in: fields are dropped in order.
    postmaster: Mutex<Option<Postmaster>>,
    place: Place,
    password: String,
    clock: Option<ClockSkew>,
}

impl PostgresServer {
    /// Starts one without further options.
    ///
    /// # Errors
    ///
    /// As [`PostgresBuilder::start`].
    pub fn start() -> io::Result<Self> {
        Self::builder().start()
    }

    /// For one with options.
    #[must_use]
    pub fn builder() -> PostgresBuilder {
        PostgresBuilder::default()
    }

    /// Starts a read-only streaming replica of `primary`, without further options.
    ///
    /// # Errors
    ///
    /// As [`PostgresBuilder::start`], and when `primary` does not run.
    pub fn standby_of(primary: &Self) -> io::Result<Self> {
        Self::builder().standby_of(primary).start()
    }

    pub(super) fn new(
        place: Place,
        password: String,
        clock: Option<ClockSkew>,
    ) -> io::Result<Self> {
        clock.as_ref().map_or(Ok(()), |clock| account::own(clock.folder()))?;
        Ok(Self { postmaster: Mutex::default(), place, password, clock })
    }

    pub(super) fn started(self) -> io::Result<Self> {
        self.start_process()?;
        Ok(self)
    }

    /// Its port on 127.0.0.1, the same over restarts.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.place.port.number()
    }

    /// Its address, of the form `127.0.0.1:5432`.
    #[must_use]
    pub fn address(&self) -> String {
        self.place.port.address()
    }

    /// The password of `postgres`, and of every role of [`create_role`](Self::create_role).
    #[must_use]
    pub fn password(&self) -> &str {
        &self.password
    }

    /// A URL over TCP for a role with [that password](Self::password), of the form
    /// `postgres://USER:PASSWORD@127.0.0.1:PORT/DATABASE`.
    #[must_use]
    pub fn url(&self, user: &str, database: &str) -> String {
        url(user, &self.password, &self.address(), database)
    }

    /// The folder of its unix socket.
    #[must_use]
    pub fn socket_dir(&self) -> &Path {
        self.place.folder.path()
    }

    /// The process id of its first process, if it runs.
    #[must_use]
    pub fn id(&self) -> Option<u32> {
        self.postmaster().as_ref().map(Postmaster::id)
    }

    /// Whether it runs, be it frozen: it may have ended by itself.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.postmaster().as_ref().is_some_and(|it| it.has_ended().is_ok_and(|ended| !ended))
    }

    /// All that it and its processes have logged so far.
    ///
    /// # Errors
    ///
    /// When the log cannot be read.
    pub fn log(&self) -> io::Result<String> {
        Ok(String::from_utf8_lossy(&fs::read(self.log_path())?).into_owned())
    }

    /// Runs statements in the database `app` as a superuser, each in a transaction of its own unless they say
    /// otherwise; answers their rows, one a line, with `|` between columns.
    ///
    /// # Errors
    ///
    /// At the first statement that fails, with the server's message; when the server does not run, or after 60 s.
    pub fn superuser_sql(&self, text: &str) -> io::Result<String> {
        let (user, database) = (TESTBED, APP);
        let (folder, port) = (self.socket_dir(), self.port());
        Psql { folder, port, user, password: "", database }.run(text)
    }

    /// Makes a role that may log in with [the password](Self::password), with further attributes as `CREATE ROLE`
    /// takes them, or none.
    ///
    /// # Errors
    ///
    /// As [`superuser_sql`](Self::superuser_sql).
    pub fn create_role(&self, name: &str, attributes: &str) -> io::Result<()> {
        let password = &self.password;
        let text = format!("CREATE ROLE \"{name}\" LOGIN PASSWORD '{password}' {attributes}");
        self.superuser_sql(&text).map(drop)
    }

    /// Ends the connections for which a condition on `pg_stat_activity` holds, such as `usename = 'jobs'`; how many.
    ///
    /// # Errors
    ///
    /// As [`superuser_sql`](Self::superuser_sql).
    pub fn terminate_backends(&self, filter: &str) -> io::Result<usize> {
        let ended = self.superuser_sql(&format!(
            "SELECT count(*) FILTER (WHERE pg_terminate_backend(pid)) FROM pg_stat_activity
             WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() AND ({filter})"
        ))?;
        ended.parse().map_err(io::Error::other)
    }

    /// Stops it and all its processes with SIGSTOP; returns once they stand still.
    ///
    /// # Errors
    ///
    /// When it does not run.
    pub fn freeze(&self) -> io::Result<()> {
        self.postmaster().as_ref().ok_or_else(not_running)?.freeze()
    }

    /// Lets all of them run on.
    ///
    /// # Errors
    ///
    /// When it does not run.
    pub fn thaw(&self) -> io::Result<()> {
        self.postmaster().as_ref().ok_or_else(not_running)?.thaw()
    }

    /// Kills it and all its processes with SIGKILL, also when they are frozen; returns once they are gone.
    ///
    /// # Errors
    ///
    /// When one does not go.
    pub fn kill(&self) -> io::Result<()> {
        self.postmaster().take().map_or(Ok(()), |mut postmaster| postmaster.kill())
    }

    /// Ends it in order: open transactions are rolled back, all is written (`pg_ctl stop -m fast`).
    ///
    /// # Errors
    ///
    /// When it does not end.
    pub fn stop(&self) -> io::Result<()> {
        self.end(Signal::INT)
    }

    /// Ends it without writing anything: the next start recovers, as after a crash (`pg_ctl stop -m immediate`).
    ///
    /// # Errors
    ///
    /// When it does not end.
    pub fn stop_immediately(&self) -> io::Result<()> {
        self.end(Signal::QUIT)
    }

    /// Starts it again on the same port with its data; one that runs is [stopped](Self::stop) first.
    ///
    /// # Errors
    ///
    /// When it does not end, or as [`PostgresBuilder::start`].
    pub fn restart(&self) -> io::Result<()> {
        self.stop()?;
        self.start_process()
    }

    /// Makes a standby a primary of its own, on a timeline of its own; returns once it takes writes.
    ///
    /// # Errors
    ///
    /// When it is no standby, or it takes too long.
    pub fn promote(&self) -> io::Result<()> {
        let promoted = self.superuser_sql("SELECT pg_promote()")?;
        let late = || io::Error::new(io::ErrorKind::TimedOut, "the standby is not promoted");
        (promoted == "t").then_some(()).ok_or_else(late)
    }

    /// Waits until this standby shows all that `primary` has committed by now.
    ///
    /// # Errors
    ///
    /// When one of the two does not run, or it takes too long.
    pub fn await_caught_up(&self, primary: &Self) -> io::Result<()> {
        let wanted = primary.superuser_sql("SELECT pg_current_wal_insert_lsn()")?;
        let look = format!("SELECT pg_last_wal_replay_lsn() >= '{wanted}'");
        await_that("a standby that has caught up", LIMIT, || {
            Ok((self.superuser_sql(&look)? == "t").then_some(()))
        })
    }

    /// Copies its files as they are now, to restore them to a later point in time:
    /// [`PostgresBuilder::restored`].
    ///
    /// # Errors
    ///
    /// When it does not run, or has no room.
    pub fn back_up(&self) -> io::Result<PostgresBackup> {
        PostgresBackup::of(self, self.place.data.join("pg_wal"))
    }

    /// Waits until it is a primary.
    pub(super) fn await_writes(&self) -> io::Result<()> {
        await_that("a server that takes writes", LIMIT, || {
            Ok((self.superuser_sql("SELECT pg_is_in_recovery()")? == "f").then_some(()))
        })
    }

    /// Sets its wall clock that many nanoseconds ahead of the right time (behind, if negative), while it runs.
    ///
    /// # Errors
    ///
    /// When it was not started with [`PostgresBuilder::clock_skew`].
    pub fn set_clock_nanos(&self, ahead: i64) -> io::Result<()> {
        let no_shim = || io::Error::other("the server was started without clock_skew");
        self.clock.as_ref().ok_or_else(no_shim)?.set_nanos(ahead)
    }

    fn end(&self, by: Signal) -> io::Result<()> {
        self.postmaster().take().map_or(Ok(()), |mut postmaster| postmaster.end(by))
    }

    fn start_process(&self) -> io::Result<()> {
        let postmaster = Postmaster::spawn(&mut self.invocation()?, &self.place.data)?;
        self.await_answer(&postmaster).map_err(|error| self.with_log(&error))?;
        *self.postmaster() = Some(postmaster);
        Ok(())
    }

    fn invocation(&self) -> io::Result<Command> {
        let log = OpenOptions::new().create(true).append(true).open(self.log_path())?;
        let mut command = account::command(&account::program("postgres")?)?;
        command.arg("-D").arg(&self.place.data).stderr(log);
        if let Some(clock) = &self.clock {
            clock.apply(&mut command);
        }
        Ok(command)
    }

    fn await_answer(&self, postmaster: &Postmaster) -> io::Result<()> {
        await_that("a server that is ready", LIMIT, || {
            if postmaster.has_ended()? {
                return Ok(Some(Err(io::Error::other("postgres ended"))));
            }
            Ok(postmaster.is_ready()?.then_some(Ok(())))
        })??;
        self.superuser_sql("SELECT").map(drop)
    }

    fn with_log(&self, error: &io::Error) -> io::Error {
        io::Error::new(error.kind(), format!("{error}\n{}", self.log().unwrap_or_default()))
    }

    fn log_path(&self) -> PathBuf {
        self.place.folder.path().join("log")
    }

    fn postmaster(&self) -> MutexGuard<'_, Option<Postmaster>> {
        self.postmaster.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn not_running() -> io::Error {
    io::Error::other("the server does not run")
}
