//! Locks in PostgreSQL as SQL alone makes them.

use std::time::Duration;

use cerrojo::clock;
use cerrojo_bench::peer::Peer;
use tokio_postgres::{Client, Error, NoTls, Statement, error::SqlState};

use super::now;
use crate::Result;

const UPSERT: &str = "
    INSERT INTO lease (name, owner, expires_at)
    VALUES ($1, $2, clock_timestamp() + $3::float8 * interval '1 ms')
    ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, expires_at = excluded.expires_at
    WHERE lease.expires_at < clock_timestamp()
    RETURNING name";
const DELETE: &str = "DELETE FROM lease WHERE name = $1 AND owner = $2";
const READ: &str = "SELECT owner FROM lease WHERE name = $1 AND expires_at > clock_timestamp()";
const SESSION_LOCK: &str = "SELECT pg_advisory_lock(hashtextextended($1, 0))";
const SESSION_UNLOCK: &str = "SELECT pg_advisory_unlock(hashtextextended($1, 0))";
const TRANSACTION_LOCK: &str = "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))";

/// A lock on a connection of its own, with prepared statements.
pub(super) struct Sql {
    client: Client,
    way: Way,
}

enum Way {
    Upsert { take: Statement, give: Statement },
    Serializable { read: Statement, take: Statement, give: Statement },
    SessionAdvisory { take: Statement, give: Statement },
    TransactionAdvisory { take: Statement },
}

/// What came of one try to take a row.
enum Tried {
    Taken,
    Held,
    /// Another transaction was in the way: try again at once.
    Raced,
}

impl Sql {
    pub(super) async fn connect(peer: Peer, url: &str) -> Result<Self> {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
        // It ends with the client, and its errors are those of the client's calls.
        tokio::spawn(connection);
        let way = Way::prepare(peer, &client).await?;
        Ok(Self { client, way })
    }

    /// Waits as the way waits; the owner.
    pub(super) async fn take(&self, name: &str, ttl_ms: u64) -> Result<i64> {
        let owner = now().cast_signed();
        match &self.way {
            Way::Upsert { .. } | Way::Serializable { .. } => {
                self.take_row(name, owner, ttl_ms).await?;
            }
            Way::SessionAdvisory { take, .. } => {
                self.client.query_one(take, &[&name]).await?;
            }
            Way::TransactionAdvisory { take } => {
                self.client.batch_execute("BEGIN").await?;
                self.client.query_one(take, &[&name]).await?;
            }
        }
        Ok(owner)
    }

    pub(super) async fn give(&self, name: &str, owner: i64) -> Result<()> {
        let given = match &self.way {
            Way::Upsert { give, .. } | Way::Serializable { give, .. } => {
                self.client.execute(give, &[&name, &owner]).await? == 1
            }
            Way::SessionAdvisory { give, .. } => {
                self.client.query_one(give, &[&name]).await?.try_get(0)?
            }
            Way::TransactionAdvisory { .. } => {
                self.client.batch_execute("COMMIT").await?;
                true
            }
        };
        if given { Ok(()) } else { Err("not held any more".into()) }
    }

    async fn take_row(&self, name: &str, owner: i64, ttl_ms: u64) -> Result<()> {
        loop {
            match self.try_row(name, owner, ttl_ms as f64).await? {
                Tried::Taken => return Ok(()),
                Tried::Held => clock::sleep(until_the_next_try()).await,
                Tried::Raced => {}
            }
        }
    }

    async fn try_row(&self, name: &str, owner: i64, ttl_ms: f64) -> Result<Tried> {
        match &self.way {
            Way::Upsert { take, .. } => {
                let row = self.client.query_opt(take, &[&name, &owner, &ttl_ms]).await?;
                Ok(if row.is_some() { Tried::Taken } else { Tried::Held })
            }
            Way::Serializable { read, take, .. } => {
                let tried = self.read_then_insert([read, take], name, owner, ttl_ms).await;
                self.raced_or(tried).await
            }
            _ => Err("there is no row".into()),
        }
    }

    async fn read_then_insert(
        &self,
        [read, take]: [&Statement; 2],
        name: &str,
        owner: i64,
        ttl_ms: f64,
    ) -> Result<Tried, Error> {
        self.client.batch_execute("BEGIN ISOLATION LEVEL SERIALIZABLE").await?;
        let holder = self.client.query_opt(read, &[&name]).await?;
        if holder.is_none() {
            self.client.query_opt(take, &[&name, &owner, &ttl_ms]).await?;
        }
        self.client.batch_execute("COMMIT").await?;
        Ok(if holder.is_none() { Tried::Taken } else { Tried::Held })
    }

    async fn raced_or(&self, tried: Result<Tried, Error>) -> Result<Tried> {
        match tried {
            Err(error) if error.code() == Some(&SqlState::T_R_SERIALIZATION_FAILURE) => {
                self.client.batch_execute("ROLLBACK").await?;
                Ok(Tried::Raced)
            }
            tried => Ok(tried?),
        }
    }
}

impl Way {
    async fn prepare(peer: Peer, client: &Client) -> Result<Self> {
        let prepare = async |text| client.prepare(text).await;
        match peer {
            Peer::Upsert => {
                Ok(Self::Upsert { take: prepare(UPSERT).await?, give: prepare(DELETE).await? })
            }
            Peer::Serializable => Ok(Self::Serializable {
                read: prepare(READ).await?,
                take: prepare(UPSERT).await?,
                give: prepare(DELETE).await?,
            }),
            Peer::SessionAdvisory => Ok(Self::SessionAdvisory {
                take: prepare(SESSION_LOCK).await?,
                give: prepare(SESSION_UNLOCK).await?,
            }),
            Peer::TransactionAdvisory => {
                Ok(Self::TransactionAdvisory { take: prepare(TRANSACTION_LOCK).await? })
            }
            other => Err(format!("{other} is not SQL alone").into()),
        }
    }
}

/// From 50 to 100 ms, all alike often: lock tables are polled each 100 ms (Spring Integration) or each 50 to 250 ms
/// (as redsync does), so this is the quick end of what is in use.
fn until_the_next_try() -> Duration {
    // The clock's last digits are random enough to keep waiters apart.
    Duration::from_micros(50_000 + now() / 1_000 % 50_001)
}
