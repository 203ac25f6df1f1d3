//! What a server is to be like.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use super::{
    PostgresBackup, PostgresServer, TESTBED, account,
    backup::{Primary, Restore},
    medium::Medium,
    server::Place,
    template::Template,
};
use crate::{Certificates, ClockSkew, Disk, Port};

/// Of an option that stands twice the later one counts, so the options of the builder come after these.
const DEFAULTS: [(&str, &str); 7] = [
    ("listen_addresses", "127.0.0.1"),
    ("shared_buffers", "16MB"),
    // In the data folder: what stands in /dev/shm would outlive a server that is killed.
    ("dynamic_shared_memory_type", "mmap"),
    ("log_destination", "stderr"),
    ("log_line_prefix", "%m [%p] %q%u@%d %e "),
    ("log_timezone", "UTC"),
    ("timezone", "UTC"),
];

/// How clients of a server with TLS prove who they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Proof {
    #[default]
    Password,
    /// A certificate in the name of the role, and the password.
    Certificate,
}

/// The options of a server that is not started yet. A copy starts another one like it.
#[derive(Clone, Debug, Default)]
pub struct PostgresBuilder {
    options: Vec<(String, String)>,
    rules: Vec<String>,
    certificates: Option<Certificates>,
    proof: Proof,
    medium: Medium,
    disk: Option<PathBuf>,
    origin: Origin,
    has_clock_skew: bool,
}

/// Where its files come from.
#[derive(Clone, Debug, Default)]
enum Origin {
    #[default]
    Template,
    Primary(Primary),
    Backup(Restore),
}

impl PostgresBuilder {
    /// Sets a parameter, such as `max_connections`; the value is quoted for you. Of two for one name the later wins.
    #[must_use]
    pub fn option(mut self, name: &str, value: &str) -> Self {
        self.options.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Syncs nothing to the disk, and needs none where memory has room: for tests that neither lose power nor measure.
    /// A killed server keeps its data all the same.
    #[must_use]
    pub fn fast(mut self) -> Self {
        self.medium = Medium::Memory;
        let unsynced = self.option("fsync", "off").option("full_page_writes", "off");
        unsynced.option("max_wal_size", "256MB")
    }

    /// Adds a line to `pg_hba.conf` before those that ask everyone for a password, such as
    /// `host all jobs 127.0.0.1/32 reject`.
    #[must_use]
    pub fn hba(mut self, rule: &str) -> Self {
        self.rules.push(rule.to_owned());
        self
    }

    /// Speaks TLS on its port, and nothing else there; asks clients for no certificate.
    #[must_use]
    pub fn tls(mut self, certificates: &Certificates) -> Self {
        self.certificates = Some(certificates.clone());
        self
    }

    /// As [`tls`](Self::tls), but only for clients with a certificate of the same authority whose name is that of
    /// their role (`clientcert=verify-full`), beside the password. That of [`Certificates::client`] is for the
    /// role `client`.
    #[must_use]
    pub fn mutual_tls(mut self, certificates: &Certificates) -> Self {
        self.proof = Proof::Certificate;
        self.tls(certificates)
    }

    /// Has its wall clock under control: [`PostgresServer::set_clock_nanos`].
    #[must_use]
    pub fn clock_skew(mut self) -> Self {
        self.has_clock_skew = true;
        self
    }

    /// Keeps its data there, so that the disk can be filled; its log and its socket stay elsewhere. It takes about
    /// 48 MB at first, then 16 MB at a time for its WAL. The disk must outlive it.
    #[must_use]
    pub fn on_disk(mut self, disk: &Disk) -> Self {
        self.disk = Some(disk.path().to_owned());
        self
    }

    /// Makes it a read-only streaming replica of `primary`, with a copy of its data. It needs a `max_connections` no
    /// smaller than that of `primary`, which must run when it is started.
    #[must_use]
    pub fn standby_of(mut self, primary: &PostgresServer) -> Self {
        self.origin = Origin::Primary(Primary::of(primary));
        self
    }

    /// Makes it what the server of `backup` was at `point`, which is a name that was given to
    /// `pg_create_restore_point` after the backup; from there on it is a primary on a timeline of its own. The server need not run when it is
    /// started, but its WAL is read from its own folder, so it must not have been dropped.
    #[must_use]
    pub fn restored(mut self, backup: &PostgresBackup, point: &str) -> Self {
        let restore = backup.up_to(point);
        self.options.extend(restore.options());
        self.origin = Origin::Backup(restore);
        self
    }

    /// Starts it, and waits until it answers.
    ///
    /// # Errors
    ///
    /// When `postgres` is missing, ends, or does not answer in time; the error shows its log. Also when a shim is
    /// asked for and `cc` is missing.
    pub fn start(&self) -> io::Result<PostgresServer> {
        let template = Template::on(self.medium)?;
        let (folder, port) = (template.server_folder()?, Port::reserve()?);
        let data =
            self.disk.as_deref().unwrap_or(folder.path()).join(format!("data-{}", port.number()));
        let password = match &self.origin {
            Origin::Template => template.copy(&data)?,
            Origin::Primary(primary) => primary.copy(&data)?,
            Origin::Backup(restore) => restore.copy(&data)?,
        };
        self.configure(folder.path(), &data, port.number())?;
        let clock = self.has_clock_skew.then(ClockSkew::new).transpose()?;
        let place = Place { folder, data, port };
        let server = PostgresServer::new(place, password.to_owned(), clock)?.started()?;
        if matches!(self.origin, Origin::Backup(_)) {
            server.await_writes()?;
        }
        Ok(server)
    }

    fn configure(&self, folder: &Path, data: &Path, port: u16) -> io::Result<()> {
        if let Some(certificates) = &self.certificates {
            copy(&certificates.authority(), &folder.join("authority.pem"))?;
            copy(&certificates.server(), &folder.join("server.pem"))?;
            copy(&certificates.server_key(), &folder.join("server.key"))?;
        }
        account::write(&data.join("postgresql.conf"), self.parameters(folder, port))?;
        account::write(&data.join("pg_hba.conf"), self.access())
    }

    fn parameters(&self, folder: &Path, port: u16) -> String {
        let at = |name: &str| folder.join(name).display().to_string();
        let mut lines: Vec<_> = DEFAULTS.iter().map(|(name, value)| line(name, value)).collect();
        lines.push(line("port", &port.to_string()));
        lines.push(line("unix_socket_directories", &folder.display().to_string()));
        if self.certificates.is_some() {
            lines.push(line("ssl", "on"));
            lines.push(line("ssl_ca_file", &at("authority.pem")));
            lines.push(line("ssl_cert_file", &at("server.pem")));
            lines.push(line("ssl_key_file", &at("server.key")));
        }
        lines.extend(self.options.iter().map(|(name, value)| line(name, value)));
        lines.concat()
    }

    /// The first rule that fits a connection decides.
    fn access(&self) -> String {
        let host = match (&self.certificates, self.proof) {
            (None, _) => "host all all 127.0.0.1/32 scram-sha-256",
            (Some(_), Proof::Password) => "hostssl all all 127.0.0.1/32 scram-sha-256",
            (Some(_), Proof::Certificate) => {
                "hostssl all all 127.0.0.1/32 scram-sha-256 clientcert=verify-full"
            }
        };
        let first = format!("local all,replication {TESTBED} trust");
        let rules = self.rules.iter().map(String::as_str);
        let all =
            [first.as_str()].into_iter().chain(rules).chain(["local all all scram-sha-256", host]);
        all.map(|rule| format!("{rule}\n")).collect()
    }
}

fn line(name: &str, value: &str) -> String {
    format!("{name} = '{}'\n", value.replace('\'', "''"))
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    account::write(to, fs::read(from)?)
}
