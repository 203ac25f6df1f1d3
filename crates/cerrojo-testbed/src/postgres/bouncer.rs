//! PgBouncer in front of a server.

use std::{
    fs::{self, OpenOptions},
    io,
    path::PathBuf,
    process::Command,
};

use rustix::process::Signal;
use tempfile::TempDir;

use super::{PostgresServer, account, medium::Medium, psql::Psql, url};
use crate::{Port, daemon::Daemon, need::find};

/// The database by which it speaks of itself.
const ADMIN: &str = "pgbouncer";

const DEFAULTS: [(&str, &str); 8] = [
    ("listen_addr", "127.0.0.1"),
    ("auth_type", "scram-sha-256"),
    ("admin_users", "postgres"),
    ("pool_mode", "transaction"),
    ("default_pool_size", "4"),
    ("max_client_conn", "500"),
    ("server_tls_sslmode", "prefer"),
    ("ignore_startup_parameters", "extra_float_digits"),
];

/// The options of a PgBouncer that is not started yet. A copy starts another one like it.
#[derive(Clone, Debug)]
pub struct PgBouncerBuilder {
    options: Vec<(String, String)>,
    users: Vec<String>,
    password: String,
    server_port: u16,
}

impl PgBouncerBuilder {
    /// Sets a parameter, such as `server_idle_timeout`. Of two for one name the later wins.
    #[must_use]
    pub fn option(mut self, name: &str, value: &str) -> Self {
        self.options.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Lends a client its server's connection until the client goes, not until its transaction ends.
    #[must_use]
    pub fn session_mode(self) -> Self {
        self.option("pool_mode", "session")
    }

    /// How many connections it has to the server for each role and database; 4 unless said otherwise.
    #[must_use]
    pub fn pool_size(self, connections: u16) -> Self {
        self.option("default_pool_size", &connections.to_string())
    }

    /// Lets in this role too, with the server's [password](PostgresServer::password); `postgres` always may.
    #[must_use]
    pub fn user(mut self, name: &str) -> Self {
        self.users.push(name.to_owned());
        self
    }

    /// Reaches the server by another port of 127.0.0.1, such as a proxy's.
    #[must_use]
    pub fn by_port(mut self, port: u16) -> Self {
        self.server_port = port;
        self
    }

    /// Starts it, and waits until it answers. It need not reach its server for that.
    ///
    /// # Errors
    ///
    /// When `pgbouncer` is missing, ends, or does not answer in time; the error shows its log.
    pub fn start(&self) -> io::Result<PgBouncer> {
        let folder = account::folder(&Medium::Disk.place(), "testbed-pgbouncer-")?;
        let port = Port::reserve()?;
        let users = self.users.iter().map(|name| format!("\"{name}\" \"{}\"\n", self.password));
        account::write(&folder.path().join("users.txt"), users.collect::<String>())?;
        let written = self.configuration(&folder, port.number());
        account::write(&folder.path().join("pgbouncer.ini"), written)?;
        let bouncer =
            PgBouncer { daemon: Daemon::default(), folder, port, password: self.password.clone() };
        bouncer.start_process()?;
        Ok(bouncer)
    }

    fn configuration(&self, folder: &TempDir, port: u16) -> String {
        let place = folder.path().display();
        let mut lines = vec![
            "[databases]".to_owned(),
            format!("* = host=127.0.0.1 port={}", self.server_port),
            "[pgbouncer]".to_owned(),
            format!("listen_port = {port}"),
            format!("unix_socket_dir = {place}"),
            format!("auth_file = {place}/users.txt"),
        ];
        lines.extend(DEFAULTS.iter().map(|(name, value)| format!("{name} = {value}")));
        lines.extend(self.options.iter().map(|(name, value)| format!("{name} = {value}")));
        lines.join("\n") + "\n"
    }
}

/// A private PgBouncer in front of a [`PostgresServer`], on a port of its own, killed when dropped. It pools by
/// transaction unless options say otherwise, and asks for the same passwords as the server.
#[derive(Debug)]
pub struct PgBouncer {
    daemon: Daemon,
    folder: TempDir,
    port: Port,
    password: String,
}

impl PgBouncer {
    /// Starts one without further options.
    ///
    /// # Errors
    ///
    /// As [`PgBouncerBuilder::start`].
    pub fn start(server: &PostgresServer) -> io::Result<Self> {
        Self::builder(server).start()
    }

    /// For one with options.
    #[must_use]
    pub fn builder(server: &PostgresServer) -> PgBouncerBuilder {
        PgBouncerBuilder {
            options: Vec::new(),
            users: vec!["postgres".to_owned()],
            password: server.password().to_owned(),
            server_port: server.port(),
        }
    }

    /// Its port on 127.0.0.1, the same over restarts.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// Its address, of the form `127.0.0.1:6432`.
    #[must_use]
    pub fn address(&self) -> String {
        self.port.address()
    }

    /// A URL through it, of the form of [`PostgresServer::url`].
    #[must_use]
    pub fn url(&self, user: &str, database: &str) -> String {
        url(user, &self.password, &self.address(), database)
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

    /// Asks it about itself, such as `SHOW POOLS`, or tells it what to do, such as `RECONNECT`; answers as
    /// [`PostgresServer::superuser_sql`].
    ///
    /// # Errors
    ///
    /// When it does not run, or refuses.
    pub fn admin(&self, command: &str) -> io::Result<String> {
        self.psql("postgres", ADMIN).run(command)
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

    /// Ends it at once, by its own means.
    ///
    /// # Errors
    ///
    /// When it does not end.
    pub fn stop(&self) -> io::Result<()> {
        self.daemon.end(|process| process.signal(Signal::TERM))
    }

    /// Starts it again on the same port; one that runs is [stopped](Self::stop) first.
    ///
    /// # Errors
    ///
    /// When it does not end, or as [`PgBouncerBuilder::start`].
    pub fn restart(&self) -> io::Result<()> {
        self.stop()?;
        self.start_process()
    }

    fn start_process(&self) -> io::Result<()> {
        let answers = || self.admin("SHOW VERSION").map(|_| true);
        let started = self.daemon.start(&mut self.invocation()?, answers);
        started.map_err(|error| self.with_log(&error))
    }

    fn invocation(&self) -> io::Result<Command> {
        let missing = || io::Error::new(io::ErrorKind::NotFound, "pgbouncer is not installed");
        let log = OpenOptions::new().create(true).append(true).open(self.log_path())?;
        let mut command = account::command(&find("pgbouncer").ok_or_else(missing)?)?;
        command.arg(self.folder.path().join("pgbouncer.ini")).stderr(log);
        Ok(command)
    }

    fn psql<'a>(&'a self, user: &'a str, database: &'a str) -> Psql<'a> {
        let (folder, port, password) = (self.folder.path(), self.port(), self.password.as_str());
        Psql { folder, port, user, password, database }
    }

    fn with_log(&self, error: &io::Error) -> io::Error {
        io::Error::new(error.kind(), format!("{error}\n{}", self.log().unwrap_or_default()))
    }

    fn log_path(&self) -> PathBuf {
        self.folder.path().join("log")
    }
}
