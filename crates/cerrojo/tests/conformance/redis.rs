//! The set-ups of Redis: one server each, started when the first trial wants it, with a prefix and a proxy for each trial.

use std::{process::ExitCode, sync::Arc};

use cerrojo::{
    OwnerId, Result,
    backend::redis::Redis,
    conformance::{Capabilities, Capability, Harness, Instance, Severed},
};
use cerrojo_testbed::{Certificates, Proxy, RedisCluster, RedisServer, Sentinels, Shared, need};
use libtest_mimic::Trial;

use super::servers::{broken, ignored_if, severed};

/// All that docs/backends/redis.md asks for.
const RIGHTS: &str = "on >p%40ss ~c* &c* +@connection +eval +evalsha +subscribe +publish +get +set +del +exists +pexpire \
                      +pttl +zadd +zrange +zrank +zscore +zrem +hset +hget +hdel +time +scan +info +wait";

/// Which servers, and how they are reached.
#[derive(Clone, Copy, Debug)]
enum SetUp {
    Plain,
    /// With a user who may do no more than is needed.
    Tls,
    Cluster,
    Sentinel,
}

/// What a set-up has started.
enum Servers {
    One(Box<RedisServer>),
    Tls(Box<RedisServer>, Certificates),
    Cluster(Box<RedisCluster>),
    Sentinel(Box<Sentinels>),
}

#[derive(Clone)]
pub(super) struct RedisHarness {
    set_up: SetUp,
    /// Stopped with the last trial.
    servers: Arc<Shared<Servers>>,
}

pub(super) struct RedisInstance {
    url: String,
    proxy: Option<Arc<Proxy>>,
    _servers: Arc<Servers>,
}

/// The trials of all set-ups, or this process's part in one of them.
pub(super) fn add(all: &mut Vec<Trial>) -> Option<ExitCode> {
    let set_ups = [SetUp::Plain, SetUp::Tls, SetUp::Cluster, SetUp::Sentinel];
    set_ups.into_iter().find_map(|set_up| {
        let harness = RedisHarness { set_up, servers: Arc::default() };
        ignored_if(need("redis-server").is_ignored(), all, |all| match set_up {
            SetUp::Plain => super::add(&harness, all),
            _ => super::add_alone(&harness, all),
        })
    })
}

impl Servers {
    fn start(set_up: SetUp) -> std::io::Result<Self> {
        Ok(match set_up {
            SetUp::Plain => Self::One(Box::new(RedisServer::start()?)),
            SetUp::Cluster => Self::Cluster(Box::new(RedisCluster::start()?)),
            SetUp::Sentinel => Self::Sentinel(Box::new(Sentinels::start()?)),
            SetUp::Tls => {
                let certificates = Certificates::new()?;
                let rights = RIGHTS.replace("%40", "@");
                let server = RedisServer::builder()
                    .mutual_tls(&certificates)
                    .user("default", "off")
                    .user("locker", &rights);
                Self::Tls(Box::new(server.start()?), certificates)
            }
        })
    }

    /// The URL of a part of its own, and the proxy that it leads through, if one can.
    fn reached(&self) -> std::io::Result<(String, Option<Proxy>)> {
        let prefix = format!("prefix=c{}", OwnerId::random().to_hex());
        let addresses = |servers: &[RedisServer]| {
            servers.iter().map(RedisServer::address).collect::<Vec<_>>().join(",")
        };
        Ok(match self {
            Self::One(server) => {
                let proxy = Proxy::start(server.port())?;
                (format!("redis://{}?{prefix}", proxy.address()), Some(proxy))
            }
            Self::Tls(server, certificates) => {
                let proxy = Proxy::start(server.port())?;
                let url = format!(
                    "rediss://locker:p%40ss@localhost:{}?{prefix}&ca={}&cert={}&key={}",
                    proxy.port(),
                    certificates.authority().display(),
                    certificates.client().display(),
                    certificates.client_key().display(),
                );
                (url, Some(proxy))
            }
            Self::Cluster(cluster) => {
                (format!("redis+cluster://{}?{prefix}", addresses(cluster.nodes())), None)
            }
            Self::Sentinel(sentinels) => {
                let addresses = addresses(sentinels.sentinels());
                (format!("redis+sentinel://{addresses}/{}?{prefix}", Sentinels::NAME), None)
            }
        })
    }
}

impl Harness for RedisHarness {
    type Backend = Redis;
    type Instance = RedisInstance;

    fn name(&self) -> String {
        match self.set_up {
            SetUp::Plain => "redis",
            SetUp::Tls => "redis+tls",
            SetUp::Cluster => "redis+cluster",
            SetUp::Sentinel => "redis+sentinel",
        }
        .to_owned()
    }

    fn capabilities(&self) -> Capabilities {
        let can = Capabilities::none()
            .with(Capability::Fifo)
            .with(Capability::Processes)
            .with(Capability::NamesHolder);
        match self.set_up {
            // Servers that are found by their own addresses cannot be reached through a proxy.
            SetUp::Cluster => can.with_descriptors_max(8),
            SetUp::Sentinel => can,
            SetUp::Plain | SetUp::Tls => can.with(Capability::Sever),
        }
    }

    async fn fresh(&self) -> Result<RedisInstance> {
        let servers = self.servers.get_or_start(|| Servers::start(self.set_up)).map_err(broken)?;
        let (url, proxy) = servers.reached().map_err(broken)?;
        Ok(RedisInstance { url, proxy: proxy.map(Arc::new), _servers: servers })
    }

    async fn open(&self, url: &str) -> Result<Redis> {
        Redis::connect(url).await
    }
}

impl Instance for RedisInstance {
    type Backend = Redis;

    async fn connect(&self) -> Result<Redis> {
        Redis::connect(&self.url).await
    }

    fn url(&self) -> Option<String> {
        Some(self.url.clone())
    }

    fn sever(&self) -> Option<Severed> {
        severed(std::slice::from_ref(self.proxy.as_ref()?))
    }
}
