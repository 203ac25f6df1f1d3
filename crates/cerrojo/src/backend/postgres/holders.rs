//! Who holds what, and taking it from them.

use super::{
    answer::{self, Answer, Held},
    backend::{Inner, Pause},
    error::PgError,
    queue::Value,
    sweep,
};
use crate::{HolderInfo, LockName, clock::Instant, spi::Break};

/// How many rows one step of pruning looks at.
const PRUNE_STEP: i64 = 1_000;

impl Inner {
    async fn rows(
        &self,
        function: &str,
        parameters: Vec<Value>,
    ) -> Result<Vec<tokio_postgres::Row>, PgError> {
        let places: Vec<_> = (1..=parameters.len()).map(|number| format!("${number}")).collect();
        let statement =
            format!("SELECT * FROM \"cerrojo\".\"lock_{function}\"({})", places.join(", "));
        self.workers.query(self.names.fill_in(&statement), parameters).await
    }

    pub(super) async fn holders(
        &self,
        after: Option<&LockName>,
        limit: usize,
    ) -> Result<Vec<HolderInfo>, PgError> {
        let after = after.map_or("", LockName::as_str).to_owned();
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let rows = self.rows("holders", vec![Value::Text(after), Value::Number(limit)]).await?;
        let holders = rows.iter().map(|row| Held::of_row(row).map(|(name, held)| held.info(name)));
        holders.collect()
    }

    pub(super) async fn holder(&self, name: &LockName) -> Result<Option<HolderInfo>, PgError> {
        let rows = self.rows("holder", vec![Value::Text(name.as_str().to_owned())]).await?;
        rows.first().map(|row| Held::of_row(row).map(|(name, held)| held.info(name))).transpose()
    }

    /// Says who had it. Asks again while somebody's transaction holds the row.
    pub(super) async fn break_until_free(
        &self,
        name: &LockName,
        when: Break,
    ) -> Result<Option<HolderInfo>, PgError> {
        let end = Instant::now() + self.call_limit;
        let mut pause = Pause::default();
        loop {
            match self.break_once(name, when).await? {
                Some(Answer::Held(held)) => return Ok(Some(held.info(name.clone()))),
                Some(Answer::Busy) if Instant::now() >= end => {
                    return Err(PgError::Busy(name.as_str().to_owned()));
                }
                Some(Answer::Busy) => pause.next().await,
                _ => return Ok(None),
            }
        }
    }

    /// None when nobody has it.
    async fn break_once(&self, name: &LockName, when: Break) -> Result<Option<Answer>, PgError> {
        let at_once = Value::Bool(when == Break::Now);
        let rows = self.rows("break", vec![Value::Text(name.as_str().to_owned()), at_once]).await?;
        let Some(row) = rows.first() else {
            return Ok(None);
        };
        let outcome: &str = row.try_get("outcome").map_err(PgError::Call)?;
        let held: Option<&str> = row.try_get("held").map_err(PgError::Call)?;
        answer::answer(outcome, None, held).map(Some)
    }

    /// All names, in steps.
    pub(super) async fn prune(&self) -> Result<u64, PgError> {
        let (mut removed, mut after) = (0, String::new());
        loop {
            let step = vec![Value::Text(after), Value::Number(PRUNE_STEP), Value::Number(0)];
            let swept = sweep::read(&self.rows("prune", step).await?)?;
            removed += swept.removed;
            match swept.last {
                Some(last) => after = last,
                None => return Ok(removed),
            }
        }
    }
}
