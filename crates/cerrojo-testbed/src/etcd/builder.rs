//! What a server is to be like.

use std::{io, time::Duration};

use super::{
    EtcdServer,
    ctl::Access,
    server::{Ports, spelled},
};
use crate::Certificates;

/// As in the field, but shorter, so that a test need not wait for an election.
const DEFAULTS: [(&str, &str); 6] = [
    ("heartbeat-interval", "50"),
    ("election-timeout", "500"),
    // Passwords are no secrets here, and the machine is small.
    ("bcrypt-cost", "4"),
    ("logger", "zap"),
    ("log-outputs", "stderr"),
    ("initial-cluster-state", "new"),
];

/// The options of a server that is not started yet. A copy starts another one like it.
#[derive(Clone, Debug, Default)]
pub struct EtcdBuilder {
    options: Vec<(String, String)>,
    certificates: Option<Certificates>,
    access: Access,
}

impl EtcdBuilder {
    /// Sets a flag of the command line, such as `auth-token-ttl`. Of two for one name the later wins.
    #[must_use]
    pub fn option(mut self, name: &str, value: &str) -> Self {
        self.options.push((name.to_owned(), value.to_owned()));
        self
    }

    /// How often a leader gives a sign of life, and how long the others wait for one, at least 5 times as long;
    /// whole milliseconds. 50 ms and 500 ms unless said otherwise; etcd's own are 100 ms and 1 s.
    ///
    /// No lease is granted for less than one and a half election timeouts, rounded up to a second.
    #[must_use]
    pub fn pace(self, heartbeat: Duration, election: Duration) -> Self {
        self.option("heartbeat-interval", &heartbeat.as_millis().to_string())
            .option("election-timeout", &election.as_millis().to_string())
    }

    /// Syncs nothing to the disk: only for tests in which no machine crashes. A kill loses nothing.
    #[must_use]
    pub fn fast(self) -> Self {
        self.option("unsafe-no-fsync", "true")
    }

    /// Speaks TLS with clients, and nothing else; asks them for no certificate. Members speak plainly to each other.
    #[must_use]
    pub fn tls(mut self, certificates: &Certificates) -> Self {
        self.certificates = Some(certificates.clone());
        self.option("cert-file", &spelled(&certificates.server()))
            .option("key-file", &spelled(&certificates.server_key()))
    }

    /// As [`tls`](Self::tls), but only with clients that have a certificate of the same authority. Together with
    /// [`auth`](Self::auth) a client without a password is the user that its certificate names: `client`.
    #[must_use]
    pub fn mutual_tls(self, certificates: &Certificates) -> Self {
        self.tls(certificates)
            .option("client-cert-auth", "true")
            .option("trusted-ca-file", &spelled(&certificates.authority()))
    }

    /// Demands a user and a password of everybody. `root` may do everything; its password is
    /// [`EtcdServer::ROOT_PASSWORD`].
    #[must_use]
    pub fn auth(mut self) -> Self {
        self.access.is_demanded = true;
        self
    }

    /// As [`auth`](Self::auth), with one more user, who may read and write all keys that begin with `prefix`, and no
    /// others.
    #[must_use]
    pub fn user(mut self, name: &str, password: &str, prefix: &str) -> Self {
        self.access.add(name, password, prefix);
        self.auth()
    }

    /// Starts one of its own, and waits until it answers.
    ///
    /// # Errors
    ///
    /// When `etcd` or `etcdctl` is missing, it ends, or does not answer in time; the error shows its log.
    pub fn start(&self) -> io::Result<EtcdServer> {
        let ports = Ports::reserve()?;
        let members = ports.member(0);
        let server = self.member(0, ports, &members)?;
        server.spawn()?;
        server.await_health()?;
        self.close(|words| server.etcdctl(words))?;
        Ok(server)
    }

    /// One of `members`, a list as `--initial-cluster` has it; not started yet.
    pub(super) fn member(
        &self,
        index: usize,
        ports: Ports,
        members: &str,
    ) -> io::Result<EtcdServer> {
        let mut flags = ports.flags(index, self.certificates.is_some());
        flags.push(("initial-cluster".to_owned(), members.to_owned()));
        let defaults = DEFAULTS.iter().map(|&(name, value)| (name.to_owned(), value.to_owned()));
        flags.extend(defaults.chain(self.options.iter().cloned()));
        let arguments = flags.iter().map(|(name, value)| format!("--{name}={value}")).collect();
        let (certificates, access) = (self.certificates.clone(), self.access.clone());
        EtcdServer::new(ports, arguments, certificates, access)
    }

    /// Makes the users by `etcdctl`, and demands them from now on, in the whole cluster.
    pub(super) fn close(&self, etcdctl: impl Fn(&[&str]) -> io::Result<String>) -> io::Result<()> {
        self.access.demand(&etcdctl)
    }
}
