//! A transaction of the user's that only the holder of a lock can make.

use std::{
    fmt,
    ops::{Deref, DerefMut},
};

use tokio_postgres::{Client, Transaction, error::SqlState, types::Type};

use super::{
    backend::Postgres,
    error::{LOST, PgError, STALE},
};
use crate::{Claim, Error, ErrorKind, Result, clock, fence::Stale};

/// A transaction in the lock's own database, begun by [`Postgres::transaction`].
///
/// It is used as the driver's transaction that it wraps. Dropped without [`commit`](Self::commit) it is rolled back.
pub struct GuardedTransaction<'a> {
    transaction: Transaction<'a>,
    place: String,
}

impl fmt::Debug for GuardedTransaction<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GuardedTransaction").field("place", &self.place).finish_non_exhaustive()
    }
}

impl<'a> Deref for GuardedTransaction<'a> {
    type Target = Transaction<'a>;

    fn deref(&self) -> &Self::Target {
        &self.transaction
    }
}

impl DerefMut for GuardedTransaction<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.transaction
    }
}

impl GuardedTransaction<'_> {
    /// Commits what was done.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Lost`] when the server had ended the transaction, since it was idle for longer than the TTL: nothing was done.
    /// [`ErrorKind::Indeterminate`] when the connection broke: it may or may not have been committed.
    ///
    /// # Cancel safety
    ///
    /// When dropped, it may or may not take effect.
    pub async fn commit(self) -> Result<()> {
        let Self { transaction, place } = self;
        transaction.commit().await.map_err(|error| ended(error, &place))
    }

    /// Undoes what was done.
    ///
    /// # Errors
    ///
    /// When the connection broke: then it is undone too.
    ///
    /// # Cancel safety
    ///
    /// May be dropped: it is undone.
    pub async fn rollback(self) -> Result<()> {
        let Self { transaction, place } = self;
        transaction.rollback().await.map_err(|error| ended(error, &place))
    }
}

impl Postgres {
    /// Begins a transaction on the user's own connection that only the holder of the lock can make: exclusion without an assumption
    /// about time, as long as all that is guarded is in this database.
    ///
    /// Its first statement takes the lock's row, with this very owner and token, FOR KEY SHARE. Nobody is granted the lock until the transaction has
    /// ended, however long that takes and whatever the clocks say; renewals pass. A client that is idle in it for longer than the lock's TTL, frozen or
    /// cut off, is disconnected by the server, and has changed nothing. The guard's claim is [`FencedGuard::claim`](crate::FencedGuard::claim).
    ///
    /// The connection is from the user's own client or pool, to the same database by a role that may use the locks. The
    /// transaction has the connection's default isolation level; for another, begin it yourself and call [`Postgres::enter`].
    /// Two round trips before the first statement of one's own.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Lost`] when the lock is not held by this token any more, with [`Stale`] as its source where a greater one has been
    /// granted; [`ErrorKind::Invalid`] for a claim of another store; else as the connection fails. Nothing has been changed.
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any time; the transaction is rolled back.
    pub async fn transaction<'a>(
        &self,
        claim: &Claim,
        client: &'a mut Client,
    ) -> Result<GuardedTransaction<'a>> {
        let place = self.inner.place.clone();
        let begun = clock::within(self.inner.call_limit, client.transaction()).await;
        let begun = begun.map_err(|_| PgError::NoAnswer(self.inner.call_limit).at(&place))?;
        let transaction = begun.map_err(|error| PgError::Call(error).at(&place))?;
        self.enter(claim, &transaction).await?;
        Ok(GuardedTransaction { transaction, place })
    }

    /// The same for a transaction that has just been begun: this has to be its first statement.
    ///
    /// # Errors
    ///
    /// As [`Postgres::transaction`]; the transaction can only be rolled back then.
    ///
    /// # Cancel safety
    ///
    /// When dropped, roll the transaction back.
    pub async fn enter(&self, claim: &Claim, transaction: &Transaction<'_>) -> Result<()> {
        let place = &self.inner.place;
        if self.inner.store()? != claim.store {
            let message = format!(
                "postgres at {place}: the claim on `{}` is of another store, {}",
                claim.name, claim.store
            );
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        let statement = "SELECT \"cerrojo\".\"lock_guard\"($1, $2::uuid, $3)";
        let statement = self.inner.names.fill_in(statement);
        let token = i64::try_from(claim.token.get()).unwrap_or(i64::MAX);
        let owner = claim.owner.to_hex();
        let parameters: [super::dial::Parameter<'_>; 3] =
            [(&claim.name.as_str(), Type::TEXT), (&owner, Type::TEXT), (&token, Type::INT8)];
        let entered =
            clock::within(self.inner.call_limit, transaction.query_typed(&statement, &parameters));
        match entered.await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(refused(claim, error).at(place)),
            Err(clock::Elapsed) => Err(PgError::NoAnswer(self.inner.call_limit).at(place)),
        }
    }
}

/// Why the row was not the holder's.
fn refused(claim: &Claim, error: tokio_postgres::Error) -> PgError {
    let said = error.as_db_error();
    match said.map(|said| said.code().code()) {
        Some(STALE) => {
            let highest = said.and_then(|said| said.detail()?.parse().ok()).unwrap_or_default();
            PgError::Stale(Stale { presented: claim.token.get(), highest })
        }
        Some(LOST) => PgError::Lost(claim.name.as_str().to_owned()),
        _ => PgError::Call(error),
    }
}

/// What has become of a transaction that was to be ended.
fn ended(error: tokio_postgres::Error, place: &str) -> Error {
    if error.code() == Some(&SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT) {
        let message = format!(
            "postgres at {place}: the transaction was idle for longer than the lock's TTL, and has changed nothing"
        );
        return Error::new(ErrorKind::Lost, message).with_source(error);
    }
    PgError::Call(error).at(place)
}
