//! What the trials share: a server, in it a table for each of them, looks at what is there, and waiters.

use std::{
    future::Future,
    io,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use cerrojo::{
    Drift, Error, ErrorKind, FencedGuard, Instant, Locker, Options, OwnerId, Ttl,
    backend::postgres::Postgres, clock,
};
use cerrojo_testbed::PostgresServer;
use libtest_mimic::{Failed, Trial};
use tokio::task::JoinHandle;
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};

#[path = "../trials/child.rs"]
mod spoken;

pub(crate) use spoken::{child_main, complaint, opened, say};

pub(crate) type Outcome<T = ()> = Result<T, Failed>;
pub(crate) type Locks = Locker<Postgres>;

/// Longer than anything takes on a busy machine; it only bounds a trial that fails.
pub(crate) const LONG: Duration = Duration::from_secs(40);
/// No trial takes longer.
const TRIAL_LIMIT: Duration = Duration::from_secs(150);
/// How long a lock that was handed over is the waiter's before it has confirmed.
pub(crate) const PROVISIONAL: Duration = Duration::from_secs(2);
/// After how long everybody asks by itself, at the latest.
pub(crate) const TICK: Duration = Duration::from_secs(10);
/// What a busy machine may add to a delay.
pub(crate) const SLACK: Duration = Duration::from_secs(3);
/// The lock of most trials.
pub(crate) const NAME: &str = "a";
/// The role that uses the locks: it has no rights but those that `init` gives it.
const ROLE: &str = "client";

/// The server of all trials, from the first that wants it on.
#[derive(Default)]
pub(crate) struct Shared(Mutex<Option<Arc<PostgresServer>>>);

impl Shared {
    fn server(&self) -> io::Result<Arc<PostgresServer>> {
        let mut server = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(server) = &*server {
            return Ok(Arc::clone(server));
        }
        Ok(Arc::clone(server.insert(Arc::new(start_server()?))))
    }
}

/// One that counts the calls of functions, and asks for no password: that would cost each of very many connections its time.
pub(crate) fn start_server() -> io::Result<PostgresServer> {
    let builder = PostgresServer::builder().fast().hba("host all all 127.0.0.1/32 trust");
    let builder = builder.option("track_functions", "all").option("max_connections", "400");
    let server = builder.start()?;
    server.create_role(ROLE, "")?;
    Ok(server)
}

/// A trial with a table of its own, in a runtime of its own.
pub(crate) fn trial<F, W>(name: &str, shared: &Arc<Shared>, proof: F) -> Trial
where
    F: FnOnce(Site) -> W + Send + 'static,
    W: Future<Output = Outcome>,
{
    let shared = Arc::clone(shared);
    Trial::test(name, move || {
        runtime().block_on(async {
            let site = Site::on(shared.server()?).await?;
            clock::within(TRIAL_LIMIT, proof(site)).await?
        })
    })
}

pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

pub(crate) fn ttl(millis: u64) -> Ttl {
    Ttl::millis(millis).unwrap()
}

pub(crate) fn kind_of<T>(answer: &cerrojo::Result<T>) -> Option<ErrorKind> {
    answer.as_ref().err().map(Error::kind)
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
        clock::sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}

/// A table of locks, and a superuser's eye on it.
pub(crate) struct Site {
    pub(crate) server: Arc<PostgresServer>,
    pub(crate) database: String,
    /// Also what the connections of its stores call themselves.
    pub(crate) table: String,
    eye: Option<Client>,
    looks: AtomicI64,
}

impl Site {
    /// A table in the common database.
    pub(crate) async fn on(server: Arc<PostgresServer>) -> Outcome<Self> {
        Self::make(server, "app".to_owned()).await
    }

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

    pub(crate) async fn lockers(&self, count: usize) -> Outcome<Vec<Locks>> {
        let mut lockers = Vec::new();
        for _ in 0..count {
            lockers.push(self.locks().await?);
        }
        Ok(lockers)
    }

    /// One that hears by way of this port.
    pub(crate) async fn locks_that_listen_at(&self, port: u16) -> Outcome<Locks> {
        Ok(open(&self.url(&format!("&listen=127.0.0.1:{port}"))).await?)
    }

    /// A connection of a user of the locks.
    pub(crate) async fn user(&self) -> Outcome<Client> {
        client(&self.server.url(ROLE, &self.database)).await
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

    /// Waits until so many do.
    pub(crate) async fn until_waiting(&self, count: i64) -> Outcome {
        let what = format!("{count} in the line");
        eventually(&what, async || Ok(self.waiting().await? == count)).await
    }

    /// Waits until nobody in the line asks by itself within the next seconds, and everybody hears.
    pub(crate) async fn until_at_rest(&self) -> Outcome {
        let awake = "SELECT count(*) FROM LOCK_waiter \
            WHERE channel = '' OR wake_at < clock_timestamp() + interval '2200 ms'";
        eventually("a line at rest", async || Ok(self.number(awake).await? == 0)).await
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

/// For a table or a database.
fn fresh_name() -> String {
    format!("t{}", &OwnerId::random().to_hex()[..16])
}

async fn client(url: &str) -> Outcome<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    // It ends with the client.
    tokio::spawn(connection);
    Ok(client)
}

/// A store with connections of its own, also on a busy machine.
pub(crate) async fn connect(url: &str) -> cerrojo::Result<Postgres> {
    let mut tries = 10;
    loop {
        match Postgres::connect(url).await {
            Err(error) if error.kind() == ErrorKind::Unavailable && tries > 0 => tries -= 1,
            connected => return connected,
        }
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

/// A guard, and when its waiter got it.
pub(crate) type Entered = (FencedGuard, Instant);

/// A task that waits for [`NAME`].
pub(crate) struct Waiter(JoinHandle<cerrojo::Result<Entered>>);

impl Waiter {
    pub(crate) fn start(locks: &Locks, ttl: Ttl) -> Self {
        let locks = locks.clone();
        Self(tokio::spawn(async move {
            let guard = locks.acquire(NAME).ttl(ttl).wait(LONG * 2).await?;
            Ok((guard, Instant::now()))
        }))
    }

    /// What it got, within [`LONG`].
    pub(crate) async fn entered(self) -> Outcome<Entered> {
        Ok(soon("a waiter", self.0).await???)
    }

    pub(crate) fn is_waiting(&self) -> bool {
        !self.0.is_finished()
    }

    /// Gives up, also what it has got meanwhile.
    pub(crate) fn abort(self) {
        self.0.abort();
    }
}

/// A waiter for each locker, in this order.
pub(crate) async fn queued(site: &Site, lockers: &[Locks], ttl_ms: u64) -> Outcome<Vec<Waiter>> {
    let mut waiters = Vec::new();
    for (count, locks) in (1..).zip(lockers) {
        waiters.push(Waiter::start(locks, ttl(ttl_ms)));
        site.until_waiting(count).await?;
    }
    Ok(waiters)
}
