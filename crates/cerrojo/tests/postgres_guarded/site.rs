//! What the trials share: a server, in it tables for each of them, and ways to it.

use std::sync::Arc;

use cerrojo::{Locker, backend::postgres::Postgres};
use cerrojo_testbed::PostgresServer;
use tokio_postgres::Client;

#[path = "../postgres_site/mod.rs"]
#[allow(dead_code, reason = "each test target uses a part")]
mod postgres_site;

pub(crate) use postgres_site::trials::{
    LONG, Outcome,
    child::{child_main, complaint, opened, say},
    eventually, millis, rounds, run, runtime, soon, ttl, until,
};
pub(crate) use postgres_site::{Locks, ROLE, Shared, client, connect};
use postgres_site::{OnServer, fresh_name, make_account, make_tables};

/// The lock of most trials.
pub(crate) const NAME: &str = "account/1";
/// A table of locks, an account beside it, and the server that they are on.
pub(crate) struct Site {
    pub(crate) server: Arc<PostgresServer>,
    pub(crate) table: String,
}

impl OnServer for Site {
    async fn on(server: Arc<PostgresServer>) -> Outcome<Self> {
        let site = Self { server, table: fresh_name() };
        make_tables(&site.server, &site.table, ROLE)?;
        let account = site.account();
        make_account(&site.server, &account)?;
        site.server.superuser_sql(&format!(
            "CREATE TABLE {account}_log (entry text PRIMARY KEY);
             GRANT SELECT, INSERT ON {account}_log TO {ROLE}"
        ))?;
        Ok(site)
    }
}

impl Site {
    /// Another one on the same server.
    pub(crate) async fn another(&self) -> Outcome<Self> {
        Self::on(Arc::clone(&self.server)).await
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
