//! Removes rows of locks that nobody uses any more, a few at a time, while the store is in use.

use std::time::Duration;

use tokio_postgres::types::Type;

use super::{config::Config, dial::Wire, error::PgError};
use crate::{clock::Instant, rng, sql::Names};

/// How many rows one step looks at.
const STEP: i64 = 500;
/// How long a row has been free that is removed: one that is used again soon stays.
const IDLE_MS: i64 = 60_000;
/// How long it rests when there was little to remove, and when there is more.
const PAUSE: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(1));

/// What one step found.
#[derive(Debug)]
pub(super) struct Swept {
    pub(super) removed: u64,
    /// Behind which name to go on; none: all have been looked at.
    pub(super) last: Option<String>,
}

/// Where it stands.
#[derive(Debug)]
pub(super) struct Sweep {
    after: String,
    due: Instant,
}

impl Default for Sweep {
    fn default() -> Self {
        Self { after: String::new(), due: Instant::now() + rng::jitter(PAUSE.0) }
    }
}

impl Sweep {
    /// One step, if it is time for one. Answers whether the connection is of further use.
    pub(super) async fn go_on(&mut self, wire: &mut Wire, config: &Config) -> bool {
        if Instant::now() < self.due {
            return true;
        }
        let end = Instant::now() + config.call_limit;
        match step(wire, end, &config.names, (&self.after, IDLE_MS)).await {
            Ok(swept) => {
                let pause = if swept.removed > 0 { PAUSE.1 } else { PAUSE.0 };
                self.due = Instant::now() + rng::jitter(pause);
                self.after = swept.last.unwrap_or_default();
                true
            }
            Err(error) => {
                tracing::debug!(%error, "a step of pruning failed");
                self.due = Instant::now() + PAUSE.0;
                error.leaves_connection()
            }
        }
    }
}

async fn step(
    wire: &mut Wire,
    end: Instant,
    names: &Names,
    (after, idle_ms): (&str, i64),
) -> Result<Swept, PgError> {
    let parameters: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 3] =
        [(&after, Type::TEXT), (&STEP, Type::INT8), (&idle_ms, Type::INT8)];
    let rows = wire.query(end, &statement(names), &parameters).await?;
    read(&rows)
}

pub(super) fn statement(names: &Names) -> String {
    names.fill_in("SELECT * FROM \"cerrojo\".\"lock_prune\"($1, $2, $3)")
}

pub(super) fn read(rows: &[tokio_postgres::Row]) -> Result<Swept, PgError> {
    let row = rows.first().ok_or_else(|| PgError::Answer("nothing".to_owned()))?;
    let removed: i64 = row.try_get("removed").map_err(PgError::Call)?;
    let last = row.try_get("last").map_err(PgError::Call)?;
    Ok(Swept { removed: u64::try_from(removed).unwrap_or(0), last })
}
