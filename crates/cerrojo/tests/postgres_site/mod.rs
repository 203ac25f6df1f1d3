//! A PostgreSQL server that the trials of a target share, and a place of its own there for each of them.

#[path = "../trials/mod.rs"]
pub(crate) mod trials;

use std::{future::Future, io, sync::Arc};

use cerrojo::{Locker, OwnerId, backend::postgres::Postgres};
use cerrojo_testbed::{PostgresBuilder, PostgresServer};
use libtest_mimic::Trial;
use tokio_postgres::{Client, NoTls};

use trials::{Outcome, bounded, connected, runtime};

pub(crate) type Locks = Locker<Postgres>;

/// The role that uses what a trial has: it has no rights but those that it was given.
pub(crate) const ROLE: &str = "client";

/// Asks nobody on this machine for a password: that would cost each of very many connections its time.
pub(crate) const TRUST: &str = "host all all 127.0.0.1/32 trust";

/// What a trial has for itself on a server that others use too.
pub(crate) trait OnServer: Sized {
    /// The server of all trials that do not break theirs.
    fn builder() -> PostgresBuilder {
        fast()
    }

    /// Makes it there.
    async fn on(server: Arc<PostgresServer>) -> Outcome<Self>;

    /// The same on a server of its own.
    async fn alone() -> Outcome<Self> {
        Self::on(Arc::new(start(&Self::builder())?)).await
    }
}

/// The server of all trials, from the first that wants it to the last.
#[derive(Clone, Default)]
pub(crate) struct Shared(Arc<cerrojo_testbed::Shared<PostgresServer>>);

impl Shared {
    /// A trial with a place of its own, in a runtime of its own.
    pub(crate) fn trial<S, W>(
        &self,
        name: &str,
        proof: impl FnOnce(S) -> W + Send + 'static,
    ) -> Trial
    where
        S: OnServer,
        W: Future<Output = Outcome>,
    {
        let shared = self.clone();
        Trial::test(name, move || {
            let server = shared.0.get_or_start(|| start(&S::builder()))?;
            runtime().block_on(bounded(async { proof(S::on(server).await?).await }))
        })
    }
}

/// Takes many connections, and counts the calls of functions.
pub(crate) fn fast() -> PostgresBuilder {
    let builder = PostgresServer::builder().fast().hba(TRUST);
    builder.option("max_connections", "400").option("track_functions", "all")
}

/// A server that knows [`ROLE`].
pub(crate) fn start(builder: &PostgresBuilder) -> io::Result<PostgresServer> {
    let server = builder.start()?;
    server.create_role(ROLE, "")?;
    Ok(server)
}

/// For a table, a role or a database.
pub(crate) fn fresh_name() -> String {
    format!("t{}", &OwnerId::random().to_hex()[..16])
}

/// Makes a table of locks that this role may use, as an administrator would: by psql.
pub(crate) fn make_tables(server: &PostgresServer, table: &str, role: &str) -> Outcome {
    let builder = Postgres::builder("postgres://ignored").table(table).grant_to(role);
    Ok(server.superuser_sql(&builder.init_sql()?).map(drop)?)
}

/// Makes a table with one balance beside the locks, 0 at first.
pub(crate) fn make_account(server: &PostgresServer, account: &str) -> Outcome {
    server.superuser_sql(&format!(
        "CREATE TABLE {account} (balance bigint NOT NULL);
         INSERT INTO {account} VALUES (0);
         GRANT SELECT, UPDATE ON {account} TO {ROLE}"
    ))?;
    Ok(())
}

/// A store with connections of its own.
pub(crate) async fn connect(url: &str) -> cerrojo::Result<Postgres> {
    connected(|| Postgres::connect(url)).await
}

/// A connection of the user's.
pub(crate) async fn client(url: &str) -> Result<Client, tokio_postgres::Error> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    // It ends with the client, and its errors are those of the client's calls.
    tokio::spawn(connection);
    Ok(client)
}
