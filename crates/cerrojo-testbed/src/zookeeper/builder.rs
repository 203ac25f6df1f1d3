//! What a server is to be like.

use std::{fs, io, path::Path};

use super::{
    ZooKeeperServer,
    server::{Ports, Role},
};
use crate::{Certificates, Port};

/// Of an option that stands twice the later one counts, so the options of the builder come after these.
const DEFAULTS: [(&str, &str); 9] = [
    ("tickTime", "200"),
    ("initLimit", "50"),
    ("syncLimit", "10"),
    ("maxSessionTimeout", "60000"),
    ("maxClientCnxns", "0"),
    ("clientPortAddress", "127.0.0.1"),
    ("admin.enableServer", "false"),
    ("4lw.commands.whitelist", "*"),
    // In KiB: else each server takes 64 MiB of disk at its first write.
    ("preAllocSize", "256"),
];

/// The options of a server that is not started yet. A copy starts another one like it.
#[derive(Clone, Debug, Default)]
pub struct ZooKeeperBuilder {
    options: Vec<(String, String)>,
    certificates: Option<Certificates>,
}

impl ZooKeeperBuilder {
    /// Adds a line to the configuration, such as `tickTime`, `minSessionTimeout` or `maxSessionTimeout`, all in
    /// milliseconds, or a system property without its `zookeeper.`. Of two for one option the later wins.
    #[must_use]
    pub fn option(mut self, name: &str, value: &str) -> Self {
        self.options.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Syncs nothing to the disk: for tests that neither lose power nor measure. A killed server keeps its data all
    /// the same.
    #[must_use]
    pub fn fast(self) -> Self {
        self.option("forceSync", "no")
    }

    /// Speaks TLS on its port, and nothing else there; asks clients for no certificate.
    #[must_use]
    pub fn tls(mut self, certificates: &Certificates) -> Self {
        self.certificates = Some(certificates.clone());
        self.option("ssl.clientAuth", "none")
    }

    /// As [`tls`](Self::tls), but only for clients with a certificate of the same authority.
    #[must_use]
    pub fn mutual_tls(self, certificates: &Certificates) -> Self {
        self.tls(certificates).option("ssl.clientAuth", "need")
    }

    /// Starts it, and waits until it answers.
    ///
    /// # Errors
    ///
    /// When `java` or ZooKeeper is missing, it ends, or it does not answer in time; the error shows its log.
    pub fn start(&self) -> io::Result<ZooKeeperServer> {
        let server = self.prepare(Role::Alone)?;
        server.spawn()?;
        server.await_up()?;
        Ok(server)
    }

    /// One that is not started yet.
    pub(super) fn prepare(&self, role: Role) -> io::Result<ZooKeeperServer> {
        let folder = tempfile::Builder::new().prefix("testbed-zookeeper-").tempdir()?;
        let secure = self.certificates.as_ref().map(|_| Port::reserve()).transpose()?;
        let ports = Ports { plain: Port::reserve()?, secure };
        let data = folder.path().join("data");
        fs::create_dir(&data)?;
        if let Role::Member(id) = role {
            fs::write(data.join("myid"), id.to_string())?;
        }
        let mut lines = self.configuration(&data, &ports);
        if let (Some(certificates), Some(port)) = (&self.certificates, &ports.secure) {
            write_stores(certificates, folder.path())?;
            lines.extend(secure_options(folder.path(), port));
        }
        fs::write(folder.path().join("zoo.cfg"), lines.join("\n") + "\n")?;
        Ok(ZooKeeperServer::new(folder, ports, role))
    }

    fn configuration(&self, data: &Path, ports: &Ports) -> Vec<String> {
        let defaults = DEFAULTS.iter().map(|(name, value)| format!("{name}={value}"));
        let mut lines: Vec<_> = defaults.collect();
        lines.push(format!("dataDir={}", data.display()));
        lines.push(format!("clientPort={}", ports.plain.number()));
        lines.extend(self.options.iter().map(|(name, value)| format!("{name}={value}")));
        lines
    }
}

/// As ZooKeeper wants them: the server's key and certificate in one file.
fn write_stores(certificates: &Certificates, folder: &Path) -> io::Result<()> {
    let (key, certificate) =
        (fs::read(certificates.server_key())?, fs::read(certificates.server())?);
    fs::write(folder.join("server.pem"), [key, certificate].concat())?;
    fs::copy(certificates.authority(), folder.join("authority.pem")).map(drop)
}

fn secure_options(folder: &Path, port: &Port) -> [String; 7] {
    let at = |name: &str| folder.join(name).display().to_string();
    [
        format!("secureClientPort={}", port.number()),
        "secureClientPortAddress=127.0.0.1".to_owned(),
        "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory".to_owned(),
        "ssl.keyStore.type=PEM".to_owned(),
        format!("ssl.keyStore.location={}", at("server.pem")),
        "ssl.trustStore.type=PEM".to_owned(),
        format!("ssl.trustStore.location={}", at("authority.pem")),
    ]
}
