//! The set-ups of Redlock: its servers are started when the first trial wants them; each trial has a database and proxies of
//! its own.

use std::{
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use cerrojo::{
    Result, Ttl,
    backend::redlock::Redlock,
    conformance::{Capabilities, Capability, Harness, Instance, Severed},
};
use cerrojo_testbed::{Certificates, Proxy, RedisServer, Shared, need};
use libtest_mimic::Trial;

use super::servers::{broken, ignored_if, severed};

/// How many nodes, and what they are like.
#[derive(Clone, Debug)]
struct SetUp {
    name: &'static str,
    nodes: usize,
    has_tls: bool,
    /// Whose form keys and values have.
    format: Option<&'static str>,
}

const SET_UPS: [SetUp; 7] = [
    SetUp { name: "redlock", nodes: 3, has_tls: false, format: None },
    SetUp { name: "redlock+1", nodes: 1, has_tls: false, format: None },
    SetUp { name: "redlock+5", nodes: 5, has_tls: false, format: None },
    SetUp { name: "redlock+tls", nodes: 3, has_tls: true, format: None },
    SetUp { name: "redlock+redlock.net", nodes: 3, has_tls: false, format: Some("redlock.net") },
    SetUp { name: "redlock+node-redlock", nodes: 3, has_tls: false, format: Some("node-redlock") },
    SetUp { name: "redlock+rslock", nodes: 3, has_tls: false, format: Some("rslock") },
];

/// As many trials can have a database of their own; a foreign format has no prefix.
const DATABASES: u32 = 4_096;

/// What a set-up has started.
struct Servers {
    nodes: Vec<RedisServer>,
    certificates: Option<Certificates>,
    next_database: AtomicU32,
}

#[derive(Clone)]
pub(super) struct RedlockHarness {
    set_up: SetUp,
    /// Stopped with the last trial.
    servers: Arc<Shared<Servers>>,
}

pub(super) struct RedlockInstance {
    url: String,
    proxies: Vec<Arc<Proxy>>,
    _servers: Arc<Servers>,
}

/// The trials of all set-ups, or this process's part in one of them.
pub(super) fn add(all: &mut Vec<Trial>) -> Option<ExitCode> {
    SET_UPS.into_iter().find_map(|set_up| {
        let is_first = set_up.name == "redlock";
        let harness = RedlockHarness { set_up, servers: Arc::default() };
        ignored_if(need("redis-server").is_ignored(), all, |all| match is_first {
            true => super::add(&harness, all),
            false => super::add_alone(&harness, all),
        })
    })
}

impl Servers {
    fn start(set_up: &SetUp) -> std::io::Result<Self> {
        let certificates = set_up.has_tls.then(Certificates::new).transpose()?;
        let plain = RedisServer::builder().option("databases", &DATABASES.to_string());
        let builder = match &certificates {
            Some(certificates) => plain.tls(certificates),
            None => plain,
        };
        let nodes: std::io::Result<_> = (0..set_up.nodes).map(|_| builder.start()).collect();
        Ok(Self { nodes: nodes?, certificates, next_database: AtomicU32::new(1) })
    }

    /// The URL of a part of its own, and the proxies that it leads through.
    fn reached(&self, set_up: &SetUp) -> std::io::Result<(String, Vec<Arc<Proxy>>)> {
        let database = self.next_database.fetch_add(1, Ordering::Relaxed);
        assert!(database < DATABASES, "no database is left");
        let proxy = |node: &RedisServer| Proxy::start(node.port()).map(Arc::new);
        let proxies = self.nodes.iter().map(proxy).collect::<std::io::Result<Vec<_>>>()?;
        let hosts: Vec<_> =
            proxies.iter().map(|proxy| format!("localhost:{}", proxy.port())).collect();
        // Servers that were started a moment ago would have no vote, and a busy machine needs more than 50 ms.
        let mut url = format!(
            "://{}/{database}?restart_grace_ms=0&ttl_max_ms=86400000&node_limit_ms=3000&call_limit_ms=3000",
            hosts.join(",")
        );
        if let Some(format) = set_up.format {
            url = format!("{url}&format={format}");
        }
        let url = match &self.certificates {
            Some(certificates) => {
                format!("redlocks{url}&ca={}", certificates.authority().display())
            }
            None => format!("redlock{url}"),
        };
        Ok((url, proxies))
    }
}

impl Harness for RedlockHarness {
    type Backend = Redlock;
    type Instance = RedlockInstance;

    fn name(&self) -> String {
        self.set_up.name.to_owned()
    }

    fn capabilities(&self) -> Capabilities {
        let can = Capabilities::none()
            .with(Capability::Processes)
            .with(Capability::Sever)
            .with_ttls(Ttl::millis(50).expect("a TTL"), Ttl::MAX);
        match self.set_up.format {
            None => can.with(Capability::NamesHolder),
            Some(_) => can,
        }
    }

    async fn fresh(&self) -> Result<RedlockInstance> {
        let servers = self.servers.get_or_start(|| Servers::start(&self.set_up)).map_err(broken)?;
        let (url, proxies) = servers.reached(&self.set_up).map_err(broken)?;
        Ok(RedlockInstance { url, proxies, _servers: servers })
    }

    async fn open(&self, url: &str) -> Result<Redlock> {
        Redlock::connect(url).await
    }
}

impl Instance for RedlockInstance {
    type Backend = Redlock;

    async fn connect(&self) -> Result<Redlock> {
        Redlock::connect(&self.url).await
    }

    fn url(&self) -> Option<String> {
        Some(self.url.clone())
    }

    fn sever(&self) -> Option<Severed> {
        severed(&self.proxies)
    }
}
