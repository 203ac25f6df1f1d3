//! Making connections, whichever way the servers are reached.

use std::{
    convert::Infallible,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use redis::{
    AsyncConnectionConfig, Client, ClientTlsConfig, Cmd, ConnectionAddr, ConnectionInfo,
    IntoConnectionInfo, ProtocolVersion, PushInfo, PushKind, RedisConnectionInfo, RedisResult,
    TlsCertificates, TlsMode, Value,
    aio::{ConnectionLike, MultiplexedConnection},
    cluster::{ClusterClient, ClusterConfig},
    cluster_async::ClusterConnection,
    cluster_routing::{RoutingInfo, SingleNodeRoutingInfo},
    io::tcp::{TcpSettings, socket2::TcpKeepalive},
    sentinel::{SentinelClient, SentinelClientBuilder, SentinelServerType},
};
use tokio::sync::Mutex;

use super::{
    config::{Address, Config, Login, Servers, Tls},
    error::RedisError,
};

/// Hears what the server pushes. Must not block.
pub(in crate::backend) type Ear = Arc<dyn Fn(PushInfo) + Send + Sync>;

/// One connection, shared by all who have a clone.
#[derive(Clone)]
pub(in crate::backend) struct Connection {
    to: To,
    ended: Arc<AtomicBool>,
}

#[derive(Clone)]
enum To {
    One(MultiplexedConnection),
    Cluster(ClusterConnection),
}

impl Connection {
    /// Whether it is known to be cut; in a cluster, where the driver mends single connections, never.
    pub(in crate::backend) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    pub(in crate::backend) async fn ask(&mut self, command: &Cmd) -> RedisResult<Value> {
        let answer = match &mut self.to {
            To::One(one) => one.req_packed_command(command).await,
            To::Cluster(cluster) => cluster.req_packed_command(command).await,
        };
        answer?.extract_error()
    }

    /// The same of the cluster's node at this address.
    pub(in crate::backend) async fn ask_node(
        &mut self,
        address: &Address,
        command: &Cmd,
    ) -> RedisResult<Value> {
        let To::Cluster(cluster) = &mut self.to else {
            return self.ask(command).await;
        };
        let (host, port) = address.clone();
        let node = SingleNodeRoutingInfo::ByAddress { host, port };
        cluster.route_command(command.clone(), RoutingInfo::SingleNode(node)).await?.extract_error()
    }

    async fn subscribe(&mut self, channel: &str) -> RedisResult<()> {
        match &mut self.to {
            To::One(one) => one.subscribe(channel).await,
            To::Cluster(cluster) => cluster.subscribe(channel).await,
        }
    }
}

/// Makes connections that hear one channel.
#[derive(Clone)]
pub(in crate::backend) struct Dial {
    way: Way,
    limit: Duration,
}

#[derive(Clone)]
enum Way {
    One(Box<Client>),
    /// The client remembers which Sentinel answered last.
    Sentinels(Arc<Mutex<SentinelClient>>),
    Cluster(Box<ClusterClient>),
}

impl Dial {
    pub(in crate::backend) fn new(config: &Config) -> Result<Self, RedisError> {
        let certificates = config.tls.as_ref().map(certificates).transpose()?;
        if certificates.is_some() {
            choose_cryptography();
        }
        let recipe = Recipe { config, certificates, tcp: tcp(config.call_limit) };
        let way = recipe.way().map_err(RedisError::Dial)?;
        Ok(Self { way, limit: config.call_limit })
    }

    pub(in crate::backend) fn is_cluster(&self) -> bool {
        matches!(self.way, Way::Cluster(_))
    }

    /// A connection that hears a channel, if one is given. The caller bounds the time it takes.
    pub(in crate::backend) async fn dial(
        &self,
        hears: Option<&(Ear, String)>,
    ) -> RedisResult<Connection> {
        let mut connection = self.connect(hears.map(|(ear, _)| ear)).await?;
        if let Some((_, channel)) = hears {
            connection.subscribe(channel).await?;
        }
        Ok(connection)
    }

    async fn connect(&self, ear: Option<&Ear>) -> RedisResult<Connection> {
        let ended = Arc::new(AtomicBool::new(false));
        let to = match &self.way {
            Way::One(client) => {
                let config = self.config(ear, &ended);
                To::One(client.get_multiplexed_async_connection_with_config(&config).await?)
            }
            Way::Sentinels(client) => {
                let config = self.config(ear, &ended);
                To::One(client.lock().await.get_async_connection_with_config(&config).await?)
            }
            Way::Cluster(client) => {
                let config = ClusterConfig::new();
                let config = match ear {
                    // That a single node is gone is no end.
                    Some(ear) => config.set_push_sender(heard_by(ear, &Arc::default())),
                    None => config,
                };
                To::Cluster(client.get_async_connection_with_config(config).await?)
            }
        };
        Ok(Connection { to, ended })
    }

    /// Time limits for answers are the caller's.
    fn config(&self, ear: Option<&Ear>, ended: &Arc<AtomicBool>) -> AsyncConnectionConfig {
        let config = AsyncConnectionConfig::new()
            .set_response_timeout(None)
            .set_connection_timeout(Some(self.limit));
        match ear {
            Some(ear) => config.set_push_sender(heard_by(ear, ended)),
            None => config,
        }
    }
}

impl std::fmt::Debug for Dial {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The clients hold passwords.
        f.debug_struct("Dial").finish_non_exhaustive()
    }
}

fn heard_by(
    ear: &Ear,
    ended: &Arc<AtomicBool>,
) -> impl Fn(PushInfo) -> Result<(), Infallible> + use<> {
    let (ear, ended) = (Arc::clone(ear), Arc::clone(ended));
    move |info| {
        if info.kind == PushKind::Disconnection {
            ended.store(true, Ordering::Relaxed);
        }
        ear(info);
        Ok(())
    }
}

/// A peer that is gone is noticed within `limit`, also when nothing is being asked.
fn tcp(limit: Duration) -> TcpSettings {
    let idle = limit.max(Duration::from_secs(1));
    let keepalive = TcpKeepalive::new().with_time(idle).with_interval(idle).with_retries(2);
    TcpSettings::default().set_nodelay(true).set_keepalive(keepalive).set_user_timeout(limit)
}

/// What all clients are made of.
struct Recipe<'a> {
    config: &'a Config,
    certificates: Option<TlsCertificates>,
    tcp: TcpSettings,
}

impl Recipe<'_> {
    fn way(&self) -> RedisResult<Way> {
        match &self.config.servers {
            Servers::One(address) => self.one(self.reached(address)),
            Servers::Socket(path) => self.one(ConnectionAddr::Unix(path.clone())),
            Servers::Sentinels { addresses, master, login } => {
                Ok(Way::Sentinels(Arc::new(Mutex::new(self.sentinels(addresses, master, login)?))))
            }
            Servers::Cluster(addresses) => Ok(Way::Cluster(Box::new(self.cluster(addresses)?))),
        }
    }

    fn reached(&self, (host, port): &Address) -> ConnectionAddr {
        match self.certificates {
            None => ConnectionAddr::Tcp(host.clone(), *port),
            Some(_) => ConnectionAddr::TcpTls {
                host: host.clone(),
                port: *port,
                insecure: false,
                tls_params: None,
            },
        }
    }

    fn settings(&self) -> RedisConnectionInfo {
        let Config { db, login, .. } = self.config;
        let settings =
            RedisConnectionInfo::default().set_protocol(ProtocolVersion::RESP3).set_db(*db);
        let settings = match &login.user {
            Some(user) => settings.set_username(user),
            None => settings,
        };
        match &login.password {
            Some(password) => settings.set_password(password),
            None => settings,
        }
    }

    fn info(&self, address: ConnectionAddr) -> RedisResult<ConnectionInfo> {
        let info = address.into_connection_info()?;
        Ok(info.set_redis_settings(self.settings()).set_tcp_settings(self.tcp.clone()))
    }

    fn one(&self, address: ConnectionAddr) -> RedisResult<Way> {
        let info = self.info(address)?;
        Ok(Way::One(Box::new(match &self.certificates {
            Some(certificates) => Client::build_with_tls(info, certificates.clone())?,
            None => Client::open(info)?,
        })))
    }

    fn sentinels(
        &self,
        addresses: &[Address],
        master: &str,
        guards: &Login,
    ) -> RedisResult<SentinelClient> {
        let addresses = addresses.iter().map(|address| self.reached(address));
        let Config { db, login, .. } = self.config;
        let mut builder =
            SentinelClientBuilder::new(addresses, master, SentinelServerType::Master)?
                .set_client_to_redis_protocol(ProtocolVersion::RESP3)
                .set_client_to_redis_db(*db)
                .set_client_to_redis_tcp_settings(self.tcp.clone())
                .set_client_to_sentinel_tcp_settings(self.tcp.clone());
        if let Some(user) = &login.user {
            builder = builder.set_client_to_redis_username(user);
        }
        if let Some(password) = &login.password {
            builder = builder.set_client_to_redis_password(password);
        }
        if let Some(user) = &guards.user {
            builder = builder.set_client_to_sentinel_username(user);
        }
        if let Some(password) = &guards.password {
            builder = builder.set_client_to_sentinel_password(password);
        }
        if let Some(certificates) = &self.certificates {
            builder = builder
                .set_client_to_redis_tls_mode(TlsMode::Secure)
                .set_client_to_sentinel_tls_mode(TlsMode::Secure)
                .set_client_to_redis_certificates(certificates.clone())
                .set_client_to_sentinel_certificates(certificates.clone());
        }
        builder.build()
    }

    /// Never asks again by itself: what a lost answer means is decided by the core.
    fn cluster(&self, addresses: &[Address]) -> RedisResult<ClusterClient> {
        let nodes = addresses.iter().map(|address| self.info(self.reached(address)));
        let nodes: RedisResult<Vec<_>> = nodes.collect();
        let builder = ClusterClient::builder(nodes?)
            .retries(0)
            .connection_timeout(self.config.call_limit)
            .response_timeout(self.config.call_limit)
            .use_protocol(ProtocolVersion::RESP3)
            .tcp_settings(self.tcp.clone());
        match &self.certificates {
            Some(certificates) => builder.tls(TlsMode::Secure).certs(certificates.clone()).build(),
            None => builder.build(),
        }
    }
}

fn certificates(tls: &Tls) -> Result<TlsCertificates, RedisError> {
    let client_tls = match &tls.client {
        Some((cert, key)) => {
            Some(ClientTlsConfig { client_cert: read(cert)?, client_key: read(key)? })
        }
        None => None,
    };
    let root_cert = tls.ca.as_deref().map(read).transpose()?;
    Ok(TlsCertificates { client_tls, root_cert })
}

fn read(path: &Path) -> Result<Vec<u8>, RedisError> {
    std::fs::read(path).map_err(|error| RedisError::Pem { path: path.to_owned(), error })
}

/// The driver takes the process's choice. One that was made before stays.
fn choose_cryptography() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // Somebody else was quicker, if this fails.
        drop(rustls::crypto::ring::default_provider().install_default());
    }
}
