//! What a trial has at hand: a server, a table of its own there, and ways to it.

use std::sync::Arc;

use cerrojo::{Locker, backend::postgres::Postgres};
use cerrojo_testbed::PostgresServer;

use crate::session::Session;

#[path = "../postgres_site/mod.rs"]
#[allow(dead_code, reason = "each test target uses a part")]
mod postgres_site;

pub(crate) use postgres_site::trials::{LONG, Outcome, rounds, run, soon, ttl, until};
pub(crate) use postgres_site::{
    Locks, OnServer, ROLE, Shared, TRUST, client, connect, fast, start,
};
use postgres_site::{fresh_name, make_tables};

/// A table, and the server that it is on.
pub(crate) struct Site {
    pub(crate) server: Arc<PostgresServer>,
    pub(crate) table: String,
}

impl OnServer for Site {
    async fn on(server: Arc<PostgresServer>) -> Outcome<Self> {
        let site = Self { server, table: fresh_name() };
        site.grant_to(ROLE)?;
        Ok(site)
    }
}

impl Site {
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
        let role = fresh_name();
        self.server.create_role(&role, "")?;
        Ok(role)
    }

    pub(crate) fn grant_to(&self, role: &str) -> Outcome {
        make_tables(&self.server, &self.table, role)
    }

    /// For the driver alone.
    pub(crate) fn driver_url(&self) -> String {
        format!("{}?application_name={}", self.server.url(ROLE, "app"), self.table)
    }

    pub(crate) async fn store(&self) -> Outcome<Postgres> {
        Ok(connect(&self.url()).await?)
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
        until(function, async || Ok(session.number(&look).await? > 0)).await
    }

    /// A connection of the role that uses the locks.
    pub(crate) async fn client(&self) -> Outcome<Session> {
        Session::open(&self.server.url(ROLE, "app"), &self.table).await
    }
}
