//! What a trial has at hand.

use std::{
    io,
    sync::{Arc, Mutex, PoisonError},
};

use cerrojo::{
    Error, ErrorKind, Instant, Locker, OwnerId, Result, backend::postgres::Postgres, clock,
};
use cerrojo_testbed::{PgBouncer, PgBouncerBuilder, PostgresBuilder, PostgresServer, Proxy};
use libtest_mimic::{Failed, Trial};

use crate::looks::Looks;

#[path = "../trials/mod.rs"]
mod trials;

pub(crate) use trials::{
    LONG, Outcome, bounded, child::complaint, child_main, eventually, goes_on, is_lost, kind,
    millis, opened, runtime, say, trial, ttl, works,
};

pub(crate) type Locks = Locker<Postgres>;

/// What a look into the database answers.
pub(crate) type Look<T> = std::result::Result<T, Failed>;

/// The role that uses the locks: it has no rights but those that `init` gives it.
pub(crate) const ROLE: &str = "client";

/// One server for all trials that leave it as it is, started when the first wants it and stopped with the last.
#[derive(Clone, Default)]
pub(crate) struct Shared(Arc<Mutex<Option<Arc<PostgresServer>>>>);

impl Shared {
    pub(crate) fn trial<F: Future<Output = Outcome> + 'static>(
        &self,
        name: &str,
        proof: fn(Site) -> F,
    ) -> Trial {
        let shared = self.clone();
        Trial::test(name, move || {
            let site = Site::at(shared.server()?)?;
            drop(shared);
            runtime().block_on(bounded(proof(site)))
        })
    }

    fn server(&self) -> io::Result<Arc<PostgresServer>> {
        let mut server = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(server) = &*server {
            return Ok(Arc::clone(server));
        }
        let builder = PostgresServer::builder().fast().option("max_connections", "200");
        // What is called how often.
        let started = Arc::new(started(&builder.option("track_functions", "pl"))?);
        *server = Some(Arc::clone(&started));
        Ok(started)
    }
}

fn started(builder: &PostgresBuilder) -> io::Result<PostgresServer> {
    let server = builder.start()?;
    server.create_role(ROLE, "")?;
    Ok(server)
}

/// A table of its own, behind a proxy.
pub(crate) struct Site {
    pub(crate) server: Arc<PostgresServer>,
    pub(crate) proxy: Proxy,
    looks: Looks,
    /// Also what its clients call themselves.
    pub(crate) table: String,
}

impl Site {
    /// On a server of its own.
    pub(crate) fn start() -> io::Result<Self> {
        Self::of(&PostgresServer::builder().fast())
    }

    pub(crate) fn of(builder: &PostgresBuilder) -> io::Result<Self> {
        Self::at(Arc::new(started(builder)?))
    }

    fn at(server: Arc<PostgresServer>) -> io::Result<Self> {
        let table = format!("t{}", &OwnerId::random().to_hex()[..16]);
        let proxy = Proxy::start(server.port())?;
        let looks = Looks::new(server.url("postgres", "app"));
        let site = Self { server, proxy, looks, table };
        site.make_tables()?;
        Ok(site)
    }

    /// By an administrator's hand.
    pub(crate) fn make_tables(&self) -> io::Result<()> {
        let builder = Postgres::builder("postgres://ignored").table(&self.table).grant_to(ROLE);
        let sql = builder.init_sql().map_err(io::Error::other)?;
        self.server.superuser_sql(&sql).map(drop)
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
    pub(crate) async fn number(&self, query: &str) -> Look<i64> {
        Ok(self.looks.ask(query).await?.parse()?)
    }

    /// What stands in the row of a name; none without a row.
    async fn row(&self, name: &str, what: &str) -> Look<i64> {
        let row = format!("SELECT {what} FROM cerrojo.{} WHERE name = '{name}'", self.table);
        self.number(&format!("SELECT coalesce(({row}), 0)::bigint")).await
    }

    pub(crate) async fn is_held(&self, name: &str) -> Look<bool> {
        let held = "(owner IS NOT NULL AND expires_at > clock_timestamp())::int";
        Ok(self.row(name, held).await? == 1)
    }

    /// The token of the latest grant; 0 where there was none.
    pub(crate) async fn token(&self, name: &str) -> Look<i64> {
        self.row(name, "token").await
    }

    /// When the lease ends, by the server's clock.
    pub(crate) async fn end_us(&self, name: &str) -> Look<i64> {
        self.row(name, "extract(epoch FROM expires_at) * 1000000").await
    }

    pub(crate) async fn waiting(&self, name: &str) -> Look<i64> {
        let table = &self.table;
        let line = format!("SELECT count(*) FROM cerrojo.{table}_waiter WHERE name = '{name}'");
        self.number(&line).await
    }

    pub(crate) async fn until_waiting(&self, name: &str, number: i64) -> Outcome {
        until("waiters in the line", async || Ok(self.waiting(name).await? == number)).await
    }

    /// Connections of the trial's clients, as the server sees them.
    pub(crate) async fn connections(&self) -> Look<i64> {
        let ours = format!("application_name = '{}'", self.table);
        self.number(&format!("SELECT count(*) FROM pg_stat_activity WHERE {ours}")).await
    }

    pub(crate) fn cut_by_server(&self) -> io::Result<usize> {
        self.server.terminate_backends(&format!("application_name = '{}'", self.table))
    }
}

/// Comes true within [`LONG`]; what fails meanwhile is not true yet.
pub(crate) async fn until(what: &str, mut is_so: impl AsyncFnMut() -> Look<bool>) -> Outcome {
    let end = Instant::now() + LONG;
    while !is_so().await.unwrap_or(false) {
        if Instant::now() >= end {
            return Err(format!("not within {LONG:?}: {what}").into());
        }
        clock::sleep(millis(10)).await;
    }
    Ok(())
}

/// A busy machine may need longer than a short limit allows.
pub(crate) async fn connect(url: &str) -> Result<Locks> {
    let mut tries = 10;
    loop {
        match Postgres::connect(url).await {
            Err(error) if error.kind() == ErrorKind::Unavailable && tries > 0 => tries -= 1,
            connected => return connected.map(Locker::new),
        }
    }
}

/// One that stands in the line in a task of its own, with connections of its own: those of one locker stand in a line
/// before the store's.
pub(crate) fn waiter(locks: Locks, name: &str, ttl_ms: u64) -> Waiter {
    let name = name.to_owned();
    tokio::spawn(async move { locks.acquire(name.as_str()).ttl(ttl(ttl_ms)).wait(2 * LONG).await })
}

pub(crate) type Waiter = tokio::task::JoinHandle<Result<cerrojo::FencedGuard>>;

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

/// An error of one of these kinds, whose message has all these words.
pub(crate) fn check_error(error: &Error, kinds: &[ErrorKind], words: &[&str]) -> Outcome {
    let said = error.to_string();
    if kinds.contains(&error.kind()) && words.iter().all(|word| said.contains(word)) {
        return Ok(());
    }
    Err(format!("expected {kinds:?} and {words:?}, but {:?}: {said}", error.kind()).into())
}
