//! Which store is behind a new connection.

use tokio_postgres::{Client, types::Type};

use super::{error::PgError, schema::VERSION, server_clock::ServerClock};
use crate::{StoreId, clock::Instant, sql::Names};

/// What the server tells of itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct About {
    pub(super) store: StoreId,
    /// What a request for a grant shows.
    pub(super) table: i64,
    pub(super) clock: ServerClock,
}

/// Refuses what cannot be used: no store, one of another version or from another cluster, a standby, an encoding that would fold names.
pub(super) async fn greet(client: &Client, names: &Names) -> Result<About, PgError> {
    let statement = names.fill_in(include_str!("sql/greet.sql"));
    let rows = client.query_typed(&statement, &[] as &[(_, Type)]).await.map_err(PgError::Call)?;
    let row = rows.first().ok_or_else(|| PgError::NoStore(names.shown()))?;
    let version: i32 = row.try_get("version").map_err(PgError::Call)?;
    let store: &str = row.try_get("store_id").map_err(PgError::Call)?;
    let is_moved: bool = row.try_get("is_moved").map_err(PgError::Call)?;
    let is_standby: bool = row.try_get("is_standby").map_err(PgError::Call)?;
    let encoding: &str = row.try_get("encoding").map_err(PgError::Call)?;
    if version != VERSION {
        return Err(PgError::Version(version));
    }
    if is_moved {
        return Err(PgError::Moved);
    }
    if is_standby {
        return Err(PgError::Standby);
    }
    if encoding != "UTF8" {
        return Err(PgError::Encoding(encoding.to_owned()));
    }
    let store = store.replace('-', "").parse().map_err(|_| PgError::Answer("a store id".into()))?;
    let micros = row.try_get("clock_us").map_err(PgError::Call)?;
    let table = row.try_get("table_oid").map_err(PgError::Call)?;
    Ok(About { store, table, clock: ServerClock { read_at: Instant::now(), micros } })
}
