//! A private etcd to compare with.

use std::{
    fs::{self, File},
    net::{Ipv4Addr, TcpListener},
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use crate::Result;

/// One member on free ports of this machine; killed when dropped.
pub(crate) struct Etcd {
    server: Child,
    client_port: u16,
}

const TRIES: u32 = 200;
const BETWEEN_TRIES: Duration = Duration::from_millis(50);

impl Etcd {
    /// Ready to serve, with its files in `folder`.
    pub(crate) fn start(folder: &Path) -> Result<Self> {
        fs::create_dir_all(folder)?;
        let [client_port, peer_port] = free_ports()?;
        let server = command(folder, client_port, peer_port)?.spawn()?;
        let etcd = Self { server, client_port };
        etcd.await_health()?;
        Ok(etcd)
    }

    pub(crate) fn endpoint(&self) -> String {
        url(self.client_port)
    }

    fn await_health(&self) -> Result<()> {
        let is_healthy = || {
            let mut ask = Command::new("etcdctl");
            ask.args(["--endpoints", &self.endpoint(), "endpoint", "health"]);
            ask.env("ETCDCTL_API", "3").stdout(Stdio::null()).stderr(Stdio::null());
            ask.status().is_ok_and(|status| status.success())
        };
        for _ in 0..TRIES {
            if is_healthy() {
                return Ok(());
            }
            pause();
        }
        Err("etcd did not become healthy".into())
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        // An error means that it has ended already.
        drop(self.server.kill());
        drop(self.server.wait());
    }
}

#[allow(clippy::disallowed_methods, reason = "no executor runs here")]
fn pause() {
    thread::sleep(BETWEEN_TRIES);
}

/// Free when asked: both are asked for before either is given back, so they differ.
fn free_ports() -> Result<[u16; 2]> {
    let listen = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let (one, other) = (listen()?, listen()?);
    Ok([one.local_addr()?.port(), other.local_addr()?.port()])
}

fn command(folder: &Path, client_port: u16, peer_port: u16) -> Result<Command> {
    let (client, peer) = (url(client_port), url(peer_port));
    let mut command = Command::new("etcd");
    command.arg("--name=bench").arg("--data-dir").arg(folder.join("data"));
    command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
    command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
    command.arg("--initial-cluster").arg(format!("bench={peer}"));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(folder.join("log"))?);
    Ok(command)
}

fn url(port: u16) -> String {
    format!("http://{}:{port}", Ipv4Addr::LOCALHOST)
}
