//! What the trials share: a server, in it a fence table for each of them, and accesses.

use std::sync::Arc;

use cerrojo::{
    StoreId,
    fence::{
        PresentedToken, Stale,
        postgres::{FenceTable, TableError},
    },
};
use cerrojo_testbed::PostgresServer;
use tokio_postgres::{Client, IsolationLevel, Transaction};

#[path = "../postgres_site/mod.rs"]
#[allow(dead_code, reason = "each test target uses a part")]
mod postgres_site;

use postgres_site::trials::until;
pub(crate) use postgres_site::trials::{LONG, Outcome, run};
pub(crate) use postgres_site::{OnServer, ROLE, Shared};
use postgres_site::{client, fresh_name, make_account};

/// The resource of most trials.
pub(crate) const RESOURCE: &str = "account/1";

pub(crate) const LEVELS: [IsolationLevel; 3] =
    [IsolationLevel::ReadCommitted, IsolationLevel::RepeatableRead, IsolationLevel::Serializable];

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

impl OnServer for Site {
    async fn on(server: Arc<PostgresServer>) -> Outcome<Self> {
        let table = fresh_name();
        let fence = FenceTable::named("fences", &table)?;
        let site = Self { server, fence, table };
        site.fence.init(&mut site.client_of("postgres").await?, &[ROLE]).await?;
        make_account(&site.server, &site.account())?;
        Ok(site)
    }
}

impl Site {
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
        Ok(client(&self.server.url(role, "app")).await?)
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
        until("somebody waits", async || Ok(self.server.superuser_sql(&waits)? != "0")).await
    }
}
