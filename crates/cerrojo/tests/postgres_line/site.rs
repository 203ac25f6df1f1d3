//! What the trials share: a server, in it a table for each of them, looks at what is there, and waiters.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use cerrojo::{Drift, ErrorKind, FencedGuard, Locker, Options, backend::postgres::Postgres};
use cerrojo_testbed::PostgresServer;
use tokio_postgres::{Client, SimpleQueryMessage};

use crate::line::NAME;

#[path = "../postgres_site/mod.rs"]
#[allow(dead_code, reason = "each test target uses a part")]
mod postgres_site;

pub(crate) use postgres_site::trials::{
    LONG, Outcome,
    child::{child_main, opened, say, talk},
    kind_of, run, runtime, soon, ttl, until,
};
pub(crate) use postgres_site::{Locks, OnServer, ROLE, Shared, connect};
use postgres_site::{client, fresh_name};

/// What a trial holds.
pub(crate) type Held = FencedGuard;

/// What is rounded to µs, twice.
const ROUNDING: Duration = Duration::from_micros(2);

/// A table of locks, and a superuser's eye on it.
pub(crate) struct Site {
    pub(crate) server: Arc<PostgresServer>,
    pub(crate) database: String,
    /// Also what the connections of its stores call themselves.
    pub(crate) table: String,
    eye: Option<Client>,
    looks: AtomicI64,
}

impl OnServer for Site {
    async fn on(server: Arc<PostgresServer>) -> Outcome<Self> {
        Self::make(server, "app".to_owned()).await
    }
}

impl Site {
    /// Another one in a database of its own, where nobody else is counted.
    pub(crate) async fn apart(&self) -> Outcome<Self> {
        let database = fresh_name();
        self.look(&format!("CREATE DATABASE {database}")).await?;
        Self::make(Arc::clone(&self.server), database).await
    }

    async fn make(server: Arc<PostgresServer>, database: String) -> Outcome<Self> {
        let table = fresh_name();
        let owner = format!("{}?sslmode=disable", server.url("postgres", &database));
        Postgres::builder(&owner).table(&table).grant_to(ROLE).init().await?;
        let mut site = Self { server, database, table, eye: None, looks: AtomicI64::default() };
        site.open_eye().await?;
        Ok(site)
    }

    pub(crate) async fn open_eye(&mut self) -> Outcome {
        self.eye = Some(client(&self.server.url("postgres", &self.database)).await?);
        Ok(())
    }

    /// How often it has looked in all.
    pub(crate) fn close_eye(&mut self) -> i64 {
        self.eye = None;
        self.looks.load(Ordering::Relaxed)
    }

    /// Of the store, with further options that begin with `&`.
    pub(crate) fn url(&self, options: &str) -> String {
        self.url_at(self.server.port(), options)
    }

    /// The same through somebody who passes things on.
    pub(crate) fn url_at(&self, port: u16, options: &str) -> String {
        let Self { server, database, table, .. } = self;
        let login = format!("{ROLE}:{}", server.password());
        format!(
            "postgres://{login}@127.0.0.1:{port}/{database}?sslmode=disable&table={table}&application_name={table}{options}"
        )
    }

    /// A locker with connections of its own.
    pub(crate) async fn locks(&self) -> Outcome<Locks> {
        Ok(open(&self.url("")).await?)
    }

    /// One that hears by way of this port.
    pub(crate) async fn locks_that_listen_at(&self, port: u16) -> Outcome<Locks> {
        Ok(open(&self.url(&format!("&listen=127.0.0.1:{port}"))).await?)
    }

    /// A connection of a user of the locks.
    pub(crate) async fn user(&self) -> Outcome<Client> {
        Ok(client(&self.server.url(ROLE, &self.database)).await?)
    }

    /// The first column of what a superuser sees; `LOCK` stands for what the names of tables and functions begin with.
    pub(crate) async fn look(&self, statement: &str) -> Outcome<Vec<String>> {
        let statement = statement.replace("LOCK", &format!("cerrojo.{}", self.table));
        self.looks.fetch_add(1, Ordering::Relaxed);
        let said = self.eye.as_ref().ok_or("no eye")?.simple_query(&statement).await?;
        let rows = said.iter().filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(row.get(0).unwrap_or_default().to_owned()),
            _ => None,
        });
        Ok(rows.collect())
    }

    pub(crate) async fn number(&self, statement: &str) -> Outcome<i64> {
        match self.look(statement).await?.as_slice() {
            [number] => Ok(number.parse()?),
            other => Err(format!("{statement}: {other:?}").into()),
        }
    }

    /// Who has [`NAME`] by the server's table, as all 32 digits.
    pub(crate) async fn owner(&self) -> Outcome<Option<String>> {
        let owner = "SELECT replace(owner::text, '-', '') FROM LOCK \
            WHERE name = 'a' AND owner IS NOT NULL AND expires_at > clock_timestamp()";
        Ok(self.look(owner).await?.pop())
    }

    /// How often a function of the store was called, by connections that have ended or told since.
    pub(crate) async fn calls(&self, function: &str) -> Outcome<i64> {
        self.number(&format!(
            "SELECT coalesce(sum(calls), 0)::bigint FROM pg_stat_user_functions \
             WHERE schemaname = 'cerrojo' AND funcname = '{}_{function}'",
            self.table
        ))
        .await
    }

    /// Connections of its stores.
    pub(crate) async fn connections(&self) -> Outcome<i64> {
        self.number(&format!(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = '{}'",
            self.table
        ))
        .await
    }

    /// How many stand in the line of [`NAME`].
    pub(crate) async fn waiting(&self) -> Outcome<i64> {
        self.number("SELECT count(*) FROM LOCK_waiter WHERE name = 'a'").await
    }

    /// Whether nobody in the line asks by itself within the next seconds, and everybody hears.
    pub(crate) async fn is_at_rest(&self) -> Outcome<bool> {
        let awake = "SELECT count(*) FROM LOCK_waiter \
            WHERE channel = '' OR wake_at < clock_timestamp() + interval '2200 ms'";
        Ok(self.number(awake).await? == 0)
    }

    /// For how long [`NAME`] is held yet by the server's clock, or a little more.
    pub(crate) async fn kept(&self) -> Outcome<Duration> {
        let kept = "SELECT (1000000 * extract(epoch FROM expires_at - clock_timestamp()))::bigint \
            FROM LOCK WHERE name = 'a' AND owner IS NOT NULL";
        let kept = u64::try_from(self.number(kept).await?).unwrap_or(0);
        Ok(Duration::from_micros(kept) + ROUNDING)
    }

    /// Frees [`NAME`], and tells nobody.
    pub(crate) async fn free_by_hand(&self) -> Outcome {
        self.look("UPDATE LOCK SET owner = NULL WHERE name = 'a'").await.map(drop)
    }

    /// Ends the connections on which its waiters hear; how many.
    pub(crate) fn deafen(&self) -> Outcome<usize> {
        let ears = format!("application_name = '{}' AND query LIKE 'LISTEN%'", self.table);
        Ok(self.server.terminate_backends(&ears)?)
    }

    /// Holds [`NAME`] without a keeper, as a process does that was killed.
    pub(crate) async fn hold_silently(&self, millis: u64) -> Outcome {
        let guard = self.locks().await?.acquire(NAME).ttl(ttl(millis)).await?;
        Ok(guard.detach().await?)
    }
}

pub(crate) async fn open(url: &str) -> cerrojo::Result<Locks> {
    Ok(locker(connect(url).await?))
}

/// Without an allowance for drift, so that validity is as long as it can be. Two on one store share its connections but not the line that
/// each has of its own before the store's.
pub(crate) fn locker(store: Postgres) -> Locks {
    let mut options = Options::default();
    options.drift = Drift { rate_ppm: 0, fixed: Duration::ZERO };
    Locker::with_options(store, options)
}

/// Gives it back; what is unknown, since the server was away, is asked again by itself.
pub(crate) async fn release(guard: FencedGuard) -> Outcome {
    match guard.release().await {
        Err(error) if error.kind() != ErrorKind::Indeterminate => Err(error.into()),
        _ => Ok(()),
    }
}

pub(crate) fn token_of(guard: &Held) -> u64 {
    guard.token().get()
}
