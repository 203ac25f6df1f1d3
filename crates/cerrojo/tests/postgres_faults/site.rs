//! What a trial has at hand.

use std::{io, sync::Arc};

use cerrojo::{Error, ErrorKind, FencedGuard, Instant, Locker, Result};
use cerrojo_testbed::{PgBouncer, PgBouncerBuilder, PostgresBuilder, PostgresServer, Proxy};

use crate::looks::Looks;

#[path = "../postgres_site/mod.rs"]
#[allow(dead_code, reason = "each test target uses a part")]
mod postgres_site;

pub(crate) use postgres_site::trials::{
    LONG, Outcome, bounded, check_error,
    child::{child_main, opened, say, talk},
    eventually, goes_on, is_lost, kind, millis, run, runtime, trial, ttl, until, works,
};
pub(crate) use postgres_site::{Locks, OnServer, ROLE, Shared, client};
use postgres_site::{fresh_name, make_tables, start};

/// A table of its own, behind a proxy.
pub(crate) struct Site {
    pub(crate) server: Arc<PostgresServer>,
    pub(crate) proxy: Proxy,
    looks: Looks,
    /// Also what its clients call themselves.
    pub(crate) table: String,
}

impl OnServer for Site {
    /// Asks everybody for a password.
    fn builder() -> PostgresBuilder {
        let builder = PostgresServer::builder().fast();
        builder.option("max_connections", "200").option("track_functions", "pl")
    }

    async fn on(server: Arc<PostgresServer>) -> Outcome<Self> {
        let proxy = Proxy::start(server.port())?;
        let looks = Looks::new(server.url("postgres", "app"));
        let site = Self { server, proxy, looks, table: fresh_name() };
        site.make_tables()?;
        Ok(site)
    }
}

impl Site {
    /// On a server of its own that is like this.
    pub(crate) async fn of(builder: &PostgresBuilder) -> Outcome<Self> {
        Self::on(Arc::new(start(builder)?)).await
    }

    /// By an administrator's hand.
    pub(crate) fn make_tables(&self) -> Outcome {
        make_tables(&self.server, &self.table, ROLE)
    }

    pub(crate) fn drop_tables(&self) -> io::Result<()> {
        let table = &self.table;
        self.server.superuser_sql(&format!(
            "SET client_min_messages = error;
             DO $$ DECLARE it regproc; BEGIN
               FOR it IN SELECT oid FROM pg_proc WHERE proname LIKE '{table}%' LOOP
                 EXECUTE format('DROP FUNCTION %s CASCADE', it::regprocedure);
               END LOOP;
             END $$;
             DROP TABLE cerrojo.{table}, cerrojo.{table}_waiter, cerrojo.{table}_store CASCADE;
             DROP SEQUENCE cerrojo.{table}_token;
             DROP TYPE cerrojo.{table}_answer"
        ))?;
        Ok(())
    }

    /// By whom, where to, and with what.
    pub(crate) fn url_of(&self, role: &str, address: &str, options: &str) -> String {
        let (password, table) = (self.server.password(), &self.table);
        format!(
            "postgres://{role}:{password}@{address}/app?sslmode=disable&table={table}&application_name={table}&{options}"
        )
    }

    /// Through the proxy.
    pub(crate) fn url(&self, options: &str) -> String {
        self.url_of(ROLE, &self.proxy.address(), options)
    }

    /// Through the proxy, with a short limit for calls.
    pub(crate) async fn locks(&self) -> Result<Locks> {
        connect(&self.url("call_limit_ms=500")).await
    }

    /// Past the proxy.
    pub(crate) async fn direct(&self) -> Result<Locks> {
        connect(&self.url_of(ROLE, &self.server.address(), "")).await
    }

    pub(crate) fn pooler(&self) -> PgBouncerBuilder {
        PgBouncer::builder(&self.server).user(ROLE)
    }

    /// One number out of the database.
    pub(crate) async fn number(&self, query: &str) -> Outcome<i64> {
        Ok(self.looks.ask(query).await?.parse()?)
    }

    /// What stands in the row of a name; none without a row.
    async fn row(&self, name: &str, what: &str) -> Outcome<i64> {
        let row = format!("SELECT {what} FROM cerrojo.{} WHERE name = '{name}'", self.table);
        self.number(&format!("SELECT coalesce(({row}), 0)::bigint")).await
    }

    pub(crate) async fn is_held(&self, name: &str) -> Outcome<bool> {
        let held = "(owner IS NOT NULL AND expires_at > clock_timestamp())::int";
        Ok(self.row(name, held).await? == 1)
    }

    /// The token of the latest grant; 0 where there was none.
    pub(crate) async fn token(&self, name: &str) -> Outcome<i64> {
        self.row(name, "token").await
    }

    /// When the lease ends, by the server's clock.
    pub(crate) async fn end_us(&self, name: &str) -> Outcome<i64> {
        self.row(name, "extract(epoch FROM expires_at) * 1000000").await
    }

    pub(crate) async fn waiting(&self, name: &str) -> Outcome<i64> {
        let table = &self.table;
        let line = format!("SELECT count(*) FROM cerrojo.{table}_waiter WHERE name = '{name}'");
        self.number(&line).await
    }

    pub(crate) async fn until_waiting(&self, name: &str, number: i64) -> Outcome {
        until("waiters in the line", async || Ok(self.waiting(name).await? == number)).await
    }

    /// Connections of the trial's clients, as the server sees them.
    pub(crate) async fn connections(&self) -> Outcome<i64> {
        let ours = format!("application_name = '{}'", self.table);
        self.number(&format!("SELECT count(*) FROM pg_stat_activity WHERE {ours}")).await
    }

    pub(crate) fn cut_by_server(&self) -> io::Result<usize> {
        self.server.terminate_backends(&format!("application_name = '{}'", self.table))
    }
}

/// A locker with connections of its own.
pub(crate) async fn connect(url: &str) -> Result<Locks> {
    postgres_site::connect(url).await.map(Locker::new)
}

/// One that stands in the line in a task of its own, with connections of its own: those of one locker stand in a line
/// before the store's.
pub(crate) fn waiter(locks: Locks, name: &str, ttl_ms: u64) -> Waiter {
    let name = name.to_owned();
    tokio::spawn(async move { locks.acquire(name.as_str()).ttl(ttl(ttl_ms)).wait(2 * LONG).await })
}

pub(crate) type Waiter = tokio::task::JoinHandle<Result<FencedGuard>>;

/// Asks until it is told that: a busy machine may need longer than the limit at first.
pub(crate) async fn until_told(locks: &Locks, told: ErrorKind, words: &[&str]) -> Outcome {
    let end = Instant::now() + LONG;
    loop {
        match locks.try_acquire("told").await {
            Ok(guard) => return Err(format!("granted: {guard:?}").into()),
            Err(error) => match check_error(&error, &[told], words) {
                Err(why) if Instant::now() >= end || is_final(&error) => return Err(why),
                Err(_) => {}
                Ok(()) => return Ok(()),
            },
        }
    }
}

fn is_final(error: &Error) -> bool {
    !matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Indeterminate)
}
