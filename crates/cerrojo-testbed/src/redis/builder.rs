//! What a server is to be like.

use std::{fs, io, path::Path};

use super::{RedisServer, TESTBED};
use crate::{Certificates, ClockSkew, Port, PowerLoss};

/// What a process of `redis-server` is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Role {
    #[default]
    Store,
    Sentinel,
}

/// The options of a server that is not started yet. A copy starts another one like it.
#[derive(Clone, Debug, Default)]
pub struct RedisBuilder {
    options: Vec<(String, String)>,
    certificates: Option<Certificates>,
    role: Role,
    has_clock_skew: bool,
    has_power_loss: bool,
}

impl RedisBuilder {
    /// Adds a line to the configuration. Of two for one option the later wins. The value stands there as it is: quote
    /// it if it has spaces that belong to it.
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

    /// Adds an ACL user, with rules as `ACL SETUSER` takes them: `on >secret ~jobs:* &* +@all`. Also changes
    /// the one named `default`.
    #[must_use]
    pub fn user(self, name: &str, rules: &str) -> Self {
        self.option("user", &format!("{name} {rules}"))
    }

    /// Speaks TLS on its port, and nothing else there; asks clients for no certificate.
    #[must_use]
    pub fn tls(mut self, certificates: &Certificates) -> Self {
        self.certificates = Some(certificates.clone());
        self.option("tls-auth-clients", "no")
    }

    /// As [`tls`](Self::tls), but only for clients with a certificate of the same authority.
    #[must_use]
    pub fn mutual_tls(self, certificates: &Certificates) -> Self {
        self.tls(certificates).option("tls-auth-clients", "yes")
    }

    /// Has its wall clock under control: [`RedisServer::set_clock_nanos`].
    #[must_use]
    pub fn clock_skew(mut self) -> Self {
        self.has_clock_skew = true;
        self
    }

    /// Has its disk under control: [`RedisServer::lose_power`].
    #[must_use]
    pub fn power_loss(mut self) -> Self {
        self.has_power_loss = true;
        self
    }

    /// Makes it a sentinel.
    #[must_use]
    pub(super) fn sentinel(mut self) -> Self {
        self.role = Role::Sentinel;
        self
    }

    /// Starts it, and waits until it answers.
    ///
    /// # Errors
    ///
    /// When `redis-server` is missing, ends, or does not answer in time; the error shows its log. Also when a shim
    /// is asked for and `cc` is missing.
    pub fn start(&self) -> io::Result<RedisServer> {
        let folder = tempfile::Builder::new().prefix("testbed-redis-").tempdir()?;
        let data = folder.path().join("data");
        fs::create_dir(&data)?;
        let port = Port::reserve()?;
        let configuration = self.configuration(folder.path(), port.number());
        fs::write(folder.path().join("redis.conf"), configuration)?;
        let clock = self.has_clock_skew.then(ClockSkew::new).transpose()?;
        let power = self.has_power_loss.then(|| PowerLoss::new(&data)).transpose()?;
        let certificates = self.certificates.clone();
        RedisServer::new(folder, port, self.role).with(certificates, clock, power).started()
    }

    fn configuration(&self, folder: &Path, port: u16) -> String {
        let (user, password) = TESTBED;
        let at = |name: &str| folder.join(name).display().to_string();
        let mut lines = vec![
            "bind 127.0.0.1".to_owned(),
            format!("unixsocket {}", at("redis.sock")),
            format!("dir {}", at("data")),
            format!("logfile {}", at("log")),
            format!("user {user} on >{password} ~* &* +@all"),
        ];
        lines.extend(self.ports(port));
        lines.extend(self.persistence());
        lines.extend(self.options.iter().map(|(name, value)| format!("{name} {value}")));
        lines.join("\n") + "\n"
    }

    fn ports(&self, port: u16) -> Vec<String> {
        let Some(certificates) = &self.certificates else { return vec![format!("port {port}")] };
        vec![
            "port 0".to_owned(),
            format!("tls-port {port}"),
            format!("tls-ca-cert-file {}", certificates.authority().display()),
            format!("tls-cert-file {}", certificates.server().display()),
            format!("tls-key-file {}", certificates.server_key().display()),
            "tls-replication yes".to_owned(),
        ]
    }

    /// Nothing is kept, and a replica need not wait for others before it gets its copy.
    fn persistence(&self) -> Vec<String> {
        let (user, password) = TESTBED;
        match self.role {
            Role::Sentinel => Vec::new(),
            Role::Store => vec![
                "save \"\"".to_owned(),
                "repl-diskless-sync-delay 0".to_owned(),
                format!("masteruser {user}"),
                format!("masterauth {password}"),
            ],
        }
    }
}
