//! The set-ups of PostgreSQL: one server each, started when the first trial wants it, with a table and a proxy for each trial.

use std::{
    process::ExitCode,
    sync::{Arc, Mutex, PoisonError},
};

use cerrojo::{
    Error, ErrorKind, OwnerId, Result,
    backend::postgres::Postgres,
    conformance::{Capabilities, Capability, Harness, Instance, Severed},
};
use cerrojo_testbed::{Certificates, Direction, PgBouncer, PostgresServer, Proxy, need};
use libtest_mimic::Trial;

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
    servers: Arc<Mutex<Option<Arc<Servers>>>>,
}

pub(super) struct PostgresInstance {
    url: String,
    proxy: Arc<Proxy>,
    _servers: Arc<Servers>,
}

/// The trials of all set-ups, or this process's part in one of them.
pub(super) fn add(all: &mut Vec<Trial>) -> Option<ExitCode> {
    for set_up in [SetUp::Plain, SetUp::PgBouncer, SetUp::Tls] {
        let mut trials = Vec::new();
        let harness = PostgresHarness { set_up, servers: Arc::default() };
        let (code, is_ignored) = match set_up {
            SetUp::Plain => (super::add(&harness, &mut trials), need("postgres").is_ignored()),
            SetUp::Tls => (super::add_alone(&harness, &mut trials), need("postgres").is_ignored()),
            SetUp::PgBouncer => {
                let missing = [need("postgres"), need("pgbouncer")];
                let is_ignored = missing.iter().any(|need| need.is_ignored());
                (super::add_alone(&harness, &mut trials), is_ignored)
            }
        };
        if code.is_some() {
            return code;
        }
        all.extend(trials.into_iter().map(|trial| trial.with_ignored_flag(is_ignored)));
    }
    None
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

impl PostgresHarness {
    fn servers(&self) -> std::io::Result<Arc<Servers>> {
        let mut servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(servers) = &*servers {
            return Ok(Arc::clone(servers));
        }
        let started = Arc::new(Servers::start(self.set_up)?);
        *servers = Some(Arc::clone(&started));
        Ok(started)
    }
}

/// The tables are made by the owner of the database, as an administrator would: by psql.
fn make(servers: &Servers, table: &str) -> Result<()> {
    let builder = Postgres::builder("postgres://ignored").table(table).grant_to(ROLE);
    let made = servers.server().superuser_sql(&builder.init_sql()?);
    made.map(drop).map_err(broken)
}

fn broken(error: std::io::Error) -> Error {
    Error::new(ErrorKind::Unavailable, "the servers did not start").with_source(error)
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
        let servers = self.servers().map_err(broken)?;
        let table = format!("t{}", &OwnerId::random().to_hex()[..16]);
        make(&servers, &table)?;
        let proxy = servers.proxy().map_err(broken)?;
        let url = servers.url(&table, &proxy);
        Ok(PostgresInstance { url, proxy: Arc::new(proxy), _servers: servers })
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

    /// A network that delivers nothing, as long as it lasts.
    fn sever(&self) -> Option<Severed> {
        struct Heals(Arc<Proxy>);
        impl Drop for Heals {
            fn drop(&mut self) {
                self.0.heal().expect("a proxy that heals");
            }
        }
        self.proxy.hold(Direction::ToServer).ok()?;
        self.proxy.hold(Direction::ToClient).ok()?;
        Some(Severed::new(Heals(Arc::clone(&self.proxy))))
    }
}
