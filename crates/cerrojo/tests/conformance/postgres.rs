//! The set-ups of PostgreSQL: one server each, started when the first trial wants it, with a table and a proxy for each trial.

use std::{process::ExitCode, sync::Arc};

use cerrojo::{
    OwnerId, Result,
    backend::postgres::Postgres,
    conformance::{Capabilities, Capability, Harness, Instance, Severed},
};
use cerrojo_testbed::{Certificates, PgBouncer, PostgresServer, Proxy, Shared, need};
use libtest_mimic::Trial;

use super::servers::{broken, ignored_if, severed};

/// The role that uses the locks: it has no rights but those that `init` gives it.
const ROLE: &str = "client";

/// How the server is reached.
#[derive(Clone, Copy, Debug)]
enum SetUp {
    Plain,
    /// In transaction mode: nothing is heard there.
    PgBouncer,
    /// With certificates on both sides.
    Tls,
}

/// What a set-up has started.
enum Servers {
    Plain(PostgresServer),
    PgBouncer(PostgresServer, PgBouncer),
    Tls(PostgresServer, Certificates),
}

#[derive(Clone)]
pub(super) struct PostgresHarness {
    set_up: SetUp,
    /// Stopped with the last trial.
    servers: Arc<Shared<Servers>>,
}

pub(super) struct PostgresInstance {
    url: String,
    proxies: [Arc<Proxy>; 1],
    _servers: Arc<Servers>,
}

/// The trials of all set-ups, or this process's part in one of them.
pub(super) fn add(all: &mut Vec<Trial>) -> Option<ExitCode> {
    let (server, pooler) = (need("postgres").is_ignored(), need("pgbouncer").is_ignored());
    [SetUp::Plain, SetUp::PgBouncer, SetUp::Tls].into_iter().find_map(|set_up| {
        let harness = PostgresHarness { set_up, servers: Arc::default() };
        match set_up {
            SetUp::Plain => ignored_if(server, all, |all| super::add(&harness, all)),
            SetUp::Tls => ignored_if(server, all, |all| super::add_alone(&harness, all)),
            SetUp::PgBouncer => {
                ignored_if(server || pooler, all, |all| super::add_alone(&harness, all))
            }
        }
    })
}

impl Servers {
    fn start(set_up: SetUp) -> std::io::Result<Self> {
        let builder = PostgresServer::builder().fast().option("max_connections", "400");
        let with_role = |server: PostgresServer| {
            server.create_role(ROLE, "")?;
            Ok::<_, std::io::Error>(server)
        };
        Ok(match set_up {
            SetUp::Plain => Self::Plain(with_role(builder.start()?)?),
            SetUp::PgBouncer => {
                let server = with_role(builder.start()?)?;
                let bouncer = PgBouncer::builder(&server).user(ROLE).pool_size(8).start()?;
                Self::PgBouncer(server, bouncer)
            }
            SetUp::Tls => {
                let certificates = Certificates::new()?;
                let server = builder.mutual_tls(&certificates).start()?;
                Self::Tls(with_role(server)?, certificates)
            }
        })
    }

    fn server(&self) -> &PostgresServer {
        match self {
            Self::Plain(server) | Self::PgBouncer(server, _) | Self::Tls(server, _) => server,
        }
    }

    fn proxy(&self) -> std::io::Result<Proxy> {
        match self {
            Self::PgBouncer(_, bouncer) => Proxy::start(bouncer.port()),
            Self::Plain(server) | Self::Tls(server, _) => Proxy::start(server.port()),
        }
    }

    /// The URL of a table, by the role and through the proxy.
    fn url(&self, table: &str, proxy: &Proxy) -> String {
        let server = self.server();
        let at = format!("postgres://{ROLE}:{}@localhost:{}", server.password(), proxy.port());
        match self {
            Self::Plain(_) | Self::PgBouncer(..) => {
                format!("{at}/app?sslmode=disable&table={table}")
            }
            Self::Tls(_, certificates) => format!(
                "{at}/app?table={table}&sslmode=verify-full&sslrootcert={}&sslcert={}&sslkey={}",
                certificates.authority().display(),
                certificates.client().display(),
                certificates.client_key().display(),
            ),
        }
    }
}

/// The tables are made by the owner of the database, as an administrator would: by psql.
fn make(servers: &Servers, table: &str) -> Result<()> {
    let builder = Postgres::builder("postgres://ignored").table(table).grant_to(ROLE);
    let made = servers.server().superuser_sql(&builder.init_sql()?);
    made.map(drop).map_err(broken)
}

impl Harness for PostgresHarness {
    type Backend = Postgres;
    type Instance = PostgresInstance;

    fn name(&self) -> String {
        match self.set_up {
            SetUp::Plain => "postgres",
            SetUp::PgBouncer => "postgres+pgbouncer",
            SetUp::Tls => "postgres+tls",
        }
        .to_owned()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::none()
            .with(Capability::Fenced)
            .with(Capability::Fifo)
            .with(Capability::Processes)
            .with(Capability::NamesHolder)
            .with(Capability::Sever)
            .with_descriptors_max(3)
    }

    async fn fresh(&self) -> Result<PostgresInstance> {
        let servers = self.servers.get_or_start(|| Servers::start(self.set_up)).map_err(broken)?;
        let table = format!("t{}", &OwnerId::random().to_hex()[..16]);
        make(&servers, &table)?;
        let proxy = servers.proxy().map_err(broken)?;
        let url = servers.url(&table, &proxy);
        Ok(PostgresInstance { url, proxies: [Arc::new(proxy)], _servers: servers })
    }

    async fn open(&self, url: &str) -> Result<Postgres> {
        Postgres::connect(url).await
    }
}

impl Instance for PostgresInstance {
    type Backend = Postgres;

    async fn connect(&self) -> Result<Postgres> {
        Postgres::connect(&self.url).await
    }

    fn url(&self) -> Option<String> {
        Some(self.url.clone())
    }

    fn sever(&self) -> Option<Severed> {
        severed(&self.proxies)
    }
}
