//! What the trials share: a server, in it a fence table for each of them, and accesses.

use std::{
    future::Future,
    io,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use cerrojo::{
    Instant, OwnerId, StoreId, clock,
    fence::{
        PresentedToken, Stale,
        postgres::{FenceTable, TableError},
    },
};
use cerrojo_testbed::{PostgresBuilder, PostgresServer};
use libtest_mimic::{Failed, Trial};
use tokio_postgres::{Client, IsolationLevel, NoTls, Transaction};

pub(crate) type Outcome<T = ()> = Result<T, Failed>;

/// Longer than anything takes on a busy machine; it only bounds a trial that fails.
pub(crate) const LONG: Duration = Duration::from_secs(40);
/// No trial takes longer.
const TRIAL_LIMIT: Duration = Duration::from_secs(600);
/// The role that touches resources: it has no rights but those that `init` gives it, and those on its account.
pub(crate) const ROLE: &str = "client";
/// The resource of most trials.
pub(crate) const RESOURCE: &str = "account/1";

pub(crate) const LEVELS: [IsolationLevel; 3] =
    [IsolationLevel::ReadCommitted, IsolationLevel::RepeatableRead, IsolationLevel::Serializable];

/// The server of all trials that do not break theirs, from the first that wants it on.
#[derive(Default)]
pub(crate) struct Shared(Mutex<Option<Arc<PostgresServer>>>);

impl Shared {
    fn server(&self) -> io::Result<Arc<PostgresServer>> {
        let mut server = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(server) = &*server {
            return Ok(Arc::clone(server));
        }
        Ok(Arc::clone(server.insert(Arc::new(start(&builder())?))))
    }
}

pub(crate) fn builder() -> PostgresBuilder {
    PostgresServer::builder().fast().option("max_connections", "200")
}

/// A server that knows [`ROLE`].
pub(crate) fn start(builder: &PostgresBuilder) -> io::Result<PostgresServer> {
    let server = builder.start()?;
    server.create_role(ROLE, "")?;
    Ok(server)
}

/// A trial with tables of its own, in a runtime of its own.
pub(crate) fn trial<F, W>(name: &str, shared: &Arc<Shared>, proof: F) -> Trial
where
    F: FnOnce(Site) -> W + Send + 'static,
    W: Future<Output = Outcome>,
{
    let shared = Arc::clone(shared);
    Trial::test(name, move || {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        runtime.block_on(async {
            let site = Site::on(shared.server()?).await?;
            clock::within(TRIAL_LIMIT, proof(site)).await?
        })
    })
}

pub(crate) fn token(number: u64) -> PresentedToken {
    number.try_into().unwrap()
}

pub(crate) fn stores() -> [StoreId; 2] {
    [[0xA; 16], [0xB; 16]].map(StoreId::from_bytes)
}

pub(crate) fn stale(presented: u64, highest: u64) -> Stale {
    Stale { presented, highest }
}

/// A fence table, an account that it guards, and the server that they are on.
pub(crate) struct Site {
    pub(crate) server: Arc<PostgresServer>,
    pub(crate) fence: FenceTable,
    table: String,
}

impl Site {
    pub(crate) async fn on(server: Arc<PostgresServer>) -> Outcome<Self> {
        let table = format!("f{}", &OwnerId::random().to_hex()[..12]);
        let fence = FenceTable::named("fences", &table)?;
        let site = Self { server, fence, table };
        site.fence.init(&mut site.client_of("postgres").await?, &[ROLE]).await?;
        let account = site.account();
        site.server.superuser_sql(&format!(
            "CREATE TABLE {account} (balance bigint NOT NULL);
             INSERT INTO {account} VALUES (0);
             GRANT SELECT, UPDATE ON {account} TO {ROLE}"
        ))?;
        Ok(site)
    }

    pub(crate) fn account(&self) -> String {
        format!("account_{}", self.table)
    }

    /// The table of the fences, with its schema.
    pub(crate) fn table(&self) -> String {
        format!("fences.{}", self.table)
    }

    pub(crate) async fn client(&self) -> Outcome<Client> {
        self.client_of(ROLE).await
    }

    pub(crate) async fn client_of(&self, role: &str) -> Outcome<Client> {
        let url = self.server.url(role, "app");
        let (client, connection) = tokio_postgres::connect(&url, NoTls).await?;
        // It ends with the client, and its errors are those of the client's calls.
        tokio::spawn(connection);
        Ok(client)
    }

    /// Admits a token of the first store.
    pub(crate) async fn admit(
        &self,
        transaction: &Transaction<'_>,
        number: u64,
    ) -> Result<(), TableError> {
        self.fence.admit(transaction, stores()[0], RESOURCE, token(number)).await
    }

    /// An access in a transaction of its own, that does nothing else.
    pub(crate) async fn pass(&self, client: &mut Client, number: u64) -> Result<(), TableError> {
        let transaction = client.transaction().await.unwrap();
        self.admit(&transaction, number).await?;
        transaction.commit().await.unwrap();
        Ok(())
    }

    pub(crate) async fn read(&self, transaction: &Transaction<'_>) -> Outcome<i64> {
        let balance = format!("SELECT balance FROM {}", self.account());
        Ok(transaction.query_one(&balance, &[]).await?.get(0))
    }

    pub(crate) async fn write(
        &self,
        transaction: &Transaction<'_>,
        balance: i64,
    ) -> Result<(), tokio_postgres::Error> {
        let text = format!("UPDATE {} SET balance = {balance}", self.account());
        transaction.execute(&text, &[]).await.map(drop)
    }

    /// Waits until somebody waits at this fence.
    pub(crate) async fn until_somebody_waits(&self) -> Outcome {
        let waits = format!(
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%{}\\_admit%'",
            self.table
        );
        let end = Instant::now() + LONG;
        while self.server.superuser_sql(&waits)? == "0" {
            assert!(Instant::now() < end, "nobody waits");
        }
        Ok(())
    }
}
