//! What a trial has at hand: a server, a table of its own there, and ways to it.

use std::{
    future::Future,
    io,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use cerrojo::{ErrorKind, Instant, Locker, OwnerId, Ttl, backend::postgres::Postgres, clock};
use cerrojo_testbed::{PostgresBuilder, PostgresServer};
use libtest_mimic::{Failed, Trial};

use crate::session::Session;

pub(crate) type Outcome<T = ()> = Result<T, Failed>;
pub(crate) type Locks = Locker<Postgres>;

/// Longer than anything takes on a busy machine; it only bounds a trial that fails.
pub(crate) const LONG: Duration = Duration::from_secs(30);
/// No trial takes longer.
const TRIAL_LIMIT: Duration = Duration::from_secs(300);
/// The role that uses the locks: it has no rights but those that `init` gives it.
pub(crate) const ROLE: &str = "client";

pub(crate) const TRUST: &str = "host all all 127.0.0.1/32 trust";

/// The server of all trials that do not break theirs: started by the first of them, ended with the last.
#[derive(Clone, Default)]
pub(crate) struct Shared(Arc<Mutex<Option<Arc<PostgresServer>>>>);

impl Shared {
    fn server(&self) -> io::Result<Arc<PostgresServer>> {
        let mut server = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(server) = &*server {
            return Ok(Arc::clone(server));
        }
        let started = Arc::new(start(&fast())?);
        *server = Some(Arc::clone(&started));
        Ok(started)
    }

    /// A table of one's own on the shared server.
    pub(crate) fn site(&self) -> Outcome<Site> {
        Site::on(self.server()?)
    }
}

/// A trial in a runtime of its own.
pub(crate) fn trial<F>(name: &str, shared: &Shared, proof: fn(Shared) -> F) -> Trial
where
    F: Future<Output = Outcome> + 'static,
{
    let shared = shared.clone();
    Trial::test(name, move || {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        runtime.block_on(async { clock::within(TRIAL_LIMIT, proof(shared)).await? })
    })
}

/// Takes many connections, and asks nobody for a password: that would cost more than all that a trial does.
pub(crate) fn fast() -> PostgresBuilder {
    PostgresServer::builder().fast().option("max_connections", "400").hba(TRUST)
}

/// A server that knows [`ROLE`].
pub(crate) fn start(builder: &PostgresBuilder) -> io::Result<PostgresServer> {
    let server = builder.start()?;
    server.create_role(ROLE, "")?;
    Ok(server)
}

/// So many in the short form, or in the long one.
pub(crate) fn rounds(short: u64, long: u64) -> u64 {
    if std::env::var_os("CERROJO_TEST_LONG").is_some() { long } else { short }
}

pub(crate) fn ttl(millis: u64) -> Ttl {
    Ttl::millis(millis).unwrap()
}

/// What `work` answers, which must be within [`LONG`].
pub(crate) async fn soon<T>(what: &str, work: impl Future<Output = T>) -> Outcome<T> {
    clock::within(LONG, work).await.map_err(|_| format!("{what}: not within {LONG:?}").into())
}

/// Looks until `is_so` says yes, which must be within [`LONG`].
pub(crate) async fn eventually<F>(what: &str, mut is_so: impl FnMut() -> F) -> Outcome
where
    F: Future<Output = Outcome<bool>>,
{
    let end = Instant::now() + LONG;
    while !is_so().await? {
        if Instant::now() >= end {
            return Err(format!("{what}: not within {LONG:?}").into());
        }
        clock::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

/// A table, and the server that it is on.
pub(crate) struct Site {
    pub(crate) server: Arc<PostgresServer>,
    pub(crate) table: String,
}

impl Site {
    /// A new table.
    pub(crate) fn on(server: Arc<PostgresServer>) -> Outcome<Self> {
        let table = format!("t{}", &OwnerId::random().to_hex()[..12]);
        let site = Self { server, table };
        site.grant_to(ROLE)?;
        Ok(site)
    }

    pub(crate) fn url(&self) -> String {
        self.url_of(ROLE)
    }

    pub(crate) fn url_of(&self, role: &str) -> String {
        let (server, table) = (self.server.url(role, "app"), &self.table);
        // So that a trial ends its own connections alone.
        format!("{server}?sslmode=disable&application_name={table}&table={table}")
    }

    /// One more role, which may do nothing yet.
    pub(crate) fn new_role(&self) -> Outcome<String> {
        let role = format!("r{}", &OwnerId::random().to_hex()[..12]);
        self.server.create_role(&role, "")?;
        Ok(role)
    }

    /// As an administrator would: by psql.
    pub(crate) fn grant_to(&self, role: &str) -> Outcome {
        let builder = Postgres::builder("postgres://ignored").table(&self.table).grant_to(role);
        Ok(self.server.superuser_sql(&builder.init_sql()?).map(drop)?)
    }

    /// For the driver alone.
    pub(crate) fn driver_url(&self) -> String {
        format!("{}?application_name={}", self.server.url(ROLE, "app"), self.table)
    }

    pub(crate) async fn store(&self) -> Outcome<Postgres> {
        connect(&self.url()).await
    }

    /// A locker with connections of its own.
    pub(crate) async fn locks(&self) -> Outcome<Locks> {
        Ok(Locker::new(self.store().await?))
    }

    /// A connection of a superuser, without anything of ours.
    pub(crate) async fn session(&self) -> Outcome<Session> {
        Session::open(&self.server.url("postgres", "app"), &self.table).await
    }

    /// Waits until the library has asked this of the server, be it without success.
    pub(crate) async fn until_asked(&self, function: &str) -> Outcome {
        let session = self.session().await?;
        let look = format!(
            "SELECT count(*) FROM pg_stat_activity WHERE usename = '{ROLE}' AND query LIKE '%{}\\_{function}\"%'",
            self.table
        );
        eventually(function, async || Ok(session.number(&look).await? > 0)).await
    }

    /// A connection of the role that uses the locks.
    pub(crate) async fn client(&self) -> Outcome<Session> {
        Session::open(&self.server.url(ROLE, "app"), &self.table).await
    }
}

/// A busy machine may need longer than the limit of a call.
pub(crate) async fn connect(url: &str) -> Outcome<Postgres> {
    let mut tries = 10;
    loop {
        match Postgres::connect(url).await {
            Err(error) if error.kind() != ErrorKind::Invalid && tries > 0 => tries -= 1,
            connected => return Ok(connected?),
        }
    }
}
