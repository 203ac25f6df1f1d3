//! What the trials share: a server, in it tables for each of them, and ways to it.

use std::{
    future::Future,
    io,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use cerrojo::{Instant, Locker, OwnerId, Ttl, backend::postgres::Postgres, clock};
use cerrojo_testbed::PostgresServer;
use libtest_mimic::{Failed, Trial};
use tokio_postgres::{Client, NoTls};

#[path = "../trials/child.rs"]
mod spoken;

pub(crate) use spoken::{child_main, complaint, opened, say};

pub(crate) type Outcome<T = ()> = Result<T, Failed>;
pub(crate) type Locks = Locker<Postgres>;

/// Longer than anything takes on a busy machine; it only bounds a trial that fails.
pub(crate) const LONG: Duration = Duration::from_secs(40);
/// No trial takes longer.
const TRIAL_LIMIT: Duration = Duration::from_secs(600);
/// The lock of most trials.
pub(crate) const NAME: &str = "account/1";
/// The role that uses the locks: it has no rights but those that `init` gives it, and those on its account.
pub(crate) const ROLE: &str = "client";

/// The server of all trials, from the first that wants it on.
#[derive(Default)]
pub(crate) struct Shared(Mutex<Option<Arc<PostgresServer>>>);

impl Shared {
    fn server(&self) -> io::Result<Arc<PostgresServer>> {
        let mut server = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(server) = &*server {
            return Ok(Arc::clone(server));
        }
        let started = PostgresServer::builder().fast().option("max_connections", "400").start()?;
        started.create_role(ROLE, "")?;
        Ok(Arc::clone(server.insert(Arc::new(started))))
    }
}

/// A trial with tables of its own, in a runtime of its own.
pub(crate) fn trial<F, W>(name: &str, shared: &Arc<Shared>, proof: F) -> Trial
where
    F: FnOnce(Site) -> W + Send + 'static,
    W: Future<Output = Outcome>,
{
    let shared = Arc::clone(shared);
    Trial::test(name, move || {
        runtime().block_on(async {
            let site = Site::on(shared.server()?)?;
            clock::within(TRIAL_LIMIT, proof(site)).await?
        })
    })
}

pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// How many rounds: the short form, or the long one with `CERROJO_TEST_LONG`.
pub(crate) fn rounds(short: usize, long: usize) -> usize {
    if std::env::var_os("CERROJO_TEST_LONG").is_some() { long } else { short }
}

pub(crate) fn ttl(millis: u64) -> Ttl {
    Ttl::millis(millis).unwrap()
}

pub(crate) fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// What `work` answers, which must be within [`LONG`].
pub(crate) async fn soon<T>(what: &str, work: impl Future<Output = T>) -> Outcome<T> {
    clock::within(LONG, work).await.map_err(|_| format!("{what}: not within {LONG:?}").into())
}

/// Looks until `is_so` says yes, which must be within [`LONG`].
pub(crate) async fn eventually(
    what: &str,
    mut is_so: impl AsyncFnMut() -> Outcome<bool>,
) -> Outcome {
    let end = Instant::now() + LONG;
    while !is_so().await? {
        if Instant::now() >= end {
            return Err(format!("{what}: not within {LONG:?}").into());
        }
        clock::sleep(millis(10)).await;
    }
    Ok(())
}

/// A table of locks, an account beside it, and the server that they are on.
pub(crate) struct Site {
    pub(crate) server: Arc<PostgresServer>,
    pub(crate) table: String,
}

impl Site {
    fn on(server: Arc<PostgresServer>) -> Outcome<Self> {
        let table = format!("t{}", &OwnerId::random().to_hex()[..12]);
        let builder = Postgres::builder("postgres://ignored").table(&table).grant_to(ROLE);
        server.superuser_sql(&builder.init_sql()?)?;
        let site = Self { server, table };
        let account = site.account();
        site.server.superuser_sql(&format!(
            "CREATE TABLE {account} (balance bigint NOT NULL);
             INSERT INTO {account} VALUES (0);
             CREATE TABLE {account}_log (entry text PRIMARY KEY);
             GRANT SELECT, UPDATE ON {account} TO {ROLE};
             GRANT SELECT, INSERT ON {account}_log TO {ROLE};"
        ))?;
        Ok(site)
    }

    /// Another one on the same server.
    pub(crate) fn another(&self) -> Outcome<Self> {
        Self::on(Arc::clone(&self.server))
    }

    /// The table in which there is one balance, 0 at first.
    pub(crate) fn account(&self) -> String {
        format!("account_{}", self.table)
    }

    pub(crate) fn add_one(&self) -> String {
        format!("UPDATE {} SET balance = balance + 1", self.account())
    }

    /// What is committed there.
    pub(crate) fn balance(&self) -> Outcome<i64> {
        let answer =
            self.server.superuser_sql(&format!("SELECT balance FROM {}", self.account()))?;
        Ok(answer.parse()?)
    }

    /// Of the store, by a server's or a proxy's port.
    pub(crate) fn url_at(&self, port: u16) -> String {
        format!("{}?sslmode=disable&table={}", self.client_url_at(port), self.table)
    }

    /// Of the user's own client.
    pub(crate) fn client_url_at(&self, port: u16) -> String {
        format!("postgres://{ROLE}:{}@127.0.0.1:{port}/app", self.server.password())
    }

    pub(crate) async fn store(&self) -> Outcome<Postgres> {
        Ok(connect(&self.url_at(self.server.port())).await?)
    }

    /// A store, and a locker on it.
    pub(crate) async fn locks(&self) -> Outcome<(Postgres, Locks)> {
        let store = self.store().await?;
        Ok((store.clone(), Locker::new(store)))
    }

    /// A connection of the user's.
    pub(crate) async fn client(&self) -> Outcome<Client> {
        Ok(client(&self.client_url_at(self.server.port())).await?)
    }
}

/// A busy machine may need longer than the limit of a call.
pub(crate) async fn connect(url: &str) -> cerrojo::Result<Postgres> {
    let mut tries = 10;
    loop {
        match Postgres::connect(url).await {
            Err(error) if error.kind() == cerrojo::ErrorKind::Unavailable && tries > 0 => {
                tries -= 1;
            }
            connected => return connected,
        }
    }
}

pub(crate) async fn client(url: &str) -> Result<Client, tokio_postgres::Error> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    // It ends with the client, and its errors are those of the client's calls.
    tokio::spawn(connection);
    Ok(client)
}
