//! A transaction of the user's that only the holder of a lock can make.

use std::{
    fmt,
    future::Future,
    ops::Deref,
    pin::pin,
    sync::Arc,
    task::{Context, Waker},
};

use tokio_postgres::{Client, Row, Transaction, error::SqlState, types::Type};

use super::{
    backend::{Inner, Postgres},
    dial::Parameter,
    error::{LOST, PgError, STALE},
};
use crate::{Claim, Error, ErrorKind, Result, clock, fence::Stale};

const GUARD: &str = "SELECT \"cerrojo\".\"lock_guard\"($1, $2::uuid, $3)";
/// Of a transaction that has failed, COMMIT alone says that it went well; what stands before it is an error then.
const COMMIT: &str = "SELECT; COMMIT";

/// A transaction in the lock's own database, begun by [`Postgres::transaction`].
///
/// It is used as the driver's client that it has borrowed, whose statements all belong to the transaction now. Dropped without
/// [`commit`](Self::commit) it is rolled back.
#[must_use = "dropping the transaction undoes what was done in it"]
pub struct GuardedTransaction<'a> {
    client: &'a mut Client,
    store: Arc<Inner>,
    claim: Claim,
    is_over: bool,
}

impl fmt::Debug for GuardedTransaction<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GuardedTransaction").field("claim", &self.claim).finish_non_exhaustive()
    }
}

impl Deref for GuardedTransaction<'_> {
    type Target = Client;

    fn deref(&self) -> &Self::Target {
        self.client
    }
}

impl Drop for GuardedTransaction<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            send(self.client.batch_execute("ROLLBACK"));
        }
    }
}

impl GuardedTransaction<'_> {
    /// Commits what was done: `Ok` means that all of it was, and that nobody else was granted the lock before.
    ///
    /// It waits for as long as the server takes.
    ///
    /// # Errors
    ///
    /// Nothing was done: [`ErrorKind::Lost`] when the connection had ended before, as when the transaction was idle for longer than the TTL,
    /// and the lock is not held any more, with [`Stale`] as its source where a greater token has been granted; [`ErrorKind::Unavailable`] when the
    /// lock is held still, or when the server refused, as after a statement that failed.
    ///
    /// [`ErrorKind::Indeterminate`] when the connection broke meanwhile: it may or may not have been committed.
    ///
    /// # Cancel safety
    ///
    /// When dropped, it may or may not take effect.
    pub async fn commit(mut self) -> Result<()> {
        let was_open = !self.client.is_closed();
        match self.client.batch_execute(COMMIT).await {
            Ok(()) => {
                self.is_over = true;
                Ok(())
            }
            Err(error) if !was_open || was_idle(&error) => {
                Err(self.store.undone(&self.claim).await)
            }
            Err(error) => Err(PgError::Call(error).at(&self.store.place)),
        }
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
    pub async fn rollback(mut self) -> Result<()> {
        self.is_over = true;
        let undone = self.client.batch_execute("ROLLBACK").await;
        undone.map_err(|error| PgError::Call(error).at(&self.store.place))
    }
}

impl Postgres {
    /// Begins a transaction on the user's own connection that only the holder of the lock can make: exclusion without an assumption
    /// about time, as long as all that is guarded is in this database.
    ///
    /// Its first statement takes the lock's row, with this very owner and token, FOR KEY SHARE. Nobody is granted the lock until the transaction has
    /// ended, however long that takes and whatever the clocks say; renewals pass. A client that is idle in it for longer than the lock's TTL, frozen or
    /// cut off, is disconnected by the server, and has changed nothing. (One that is frozen in the middle of a COPY FROM STDIN is not: the server waits
    /// for the rest, and so do the others.)
    ///
    /// The connection is from the user's own client or pool, to the same database by a role that may use the locks, directly or by a pooler. The
    /// transaction has the connection's default isolation level; for another, or to guard a transaction by two locks, there is [`Postgres::enter`].
    /// One round trip, so no more than beginning it without a guard.
    ///
    /// ```no_run
    /// # async fn book(mut client: tokio_postgres::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// use cerrojo::{Locker, backend::postgres::Postgres};
    /// let store = Postgres::connect("postgres://app@db/app").await?;
    /// let locks = Locker::new(store.clone());
    ///
    /// let guard = locks.acquire("account/7").await?;
    /// let transaction = store.transaction(&guard, &mut client).await?;
    /// transaction.execute("UPDATE account SET balance = balance - 10 WHERE id = 7", &[]).await?;
    /// transaction.commit().await?;
    /// # Ok(())
    /// # }
    /// ```
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
        claim: impl Into<Claim>,
        client: &'a mut Client,
    ) -> Result<GuardedTransaction<'a>> {
        let (store, claim) = (Arc::clone(&self.inner), claim.into());
        store.check_store(&claim)?;
        let transaction = GuardedTransaction { client, store, claim, is_over: false };
        let GuardedTransaction { client, store, claim, .. } = &transaction;
        // The second leaves right behind the first, and is refused if that was.
        let both = async {
            tokio::try_join!(biased; client.batch_execute("BEGIN"), store.guard(claim, client))
        };
        store.in_time(claim, both).await?;
        Ok(transaction)
    }

    /// The same for a transaction that has just been begun: this has to be its first statement.
    ///
    /// For an isolation level of one's own, for a transaction that two locks guard, and where the driver's type is wanted. What is sent
    /// together with it, as by `tokio::try_join!`, costs no round trip more.
    ///
    /// ```no_run
    /// # use cerrojo::{FencedGuard, backend::postgres::Postgres};
    /// # async fn book(store: Postgres, guard: FencedGuard, mut client: tokio_postgres::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let level = tokio_postgres::IsolationLevel::Serializable;
    /// let transaction = client.build_transaction().isolation_level(level).start().await?;
    /// store.enter(&guard, &transaction).await?;
    /// transaction.execute("UPDATE account SET balance = balance - 10 WHERE id = 7", &[]).await?;
    /// transaction.commit().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Postgres::transaction`]; the transaction can only be rolled back then. In REPEATABLE READ and SERIALIZABLE also
    /// [`ErrorKind::Unavailable`], with the server's serialization failure as its source, when a renewal came in between: roll back and begin anew.
    ///
    /// # Cancel safety
    ///
    /// When dropped, roll the transaction back.
    pub async fn enter(
        &self,
        claim: impl Into<Claim>,
        transaction: &Transaction<'_>,
    ) -> Result<()> {
        let claim = claim.into();
        self.inner.check_store(&claim)?;
        let guard = self.inner.guard(&claim, transaction.client());
        self.inner.in_time(&claim, guard).await.map(drop)
    }
}

impl Inner {
    fn check_store(&self, claim: &Claim) -> Result<()> {
        if self.store()? == claim.store {
            return Ok(());
        }
        let Claim { name, store, .. } = claim;
        let message = format!(
            "postgres at {}: the claim on `{name}` is of another store, {store}",
            self.place
        );
        Err(Error::new(ErrorKind::Invalid, message))
    }

    async fn guard(
        &self,
        claim: &Claim,
        client: &Client,
    ) -> Result<Vec<Row>, tokio_postgres::Error> {
        let statement = self.names.fill_in(GUARD);
        let token = i64::try_from(claim.token.get()).unwrap_or(i64::MAX);
        let owner = claim.owner.to_hex();
        let parameters: [Parameter<'_>; 3] =
            [(&claim.name.as_str(), Type::TEXT), (&owner, Type::TEXT), (&token, Type::INT8)];
        client.query_typed(&statement, &parameters).await
    }

    async fn in_time<T>(
        &self,
        claim: &Claim,
        entering: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T> {
        let entered = clock::within(self.call_limit, entering).await;
        let entered = entered.map_err(|_| PgError::NoAnswer(self.call_limit).at(&self.place))?;
        entered.map_err(|error| refused(claim, error).at(&self.place))
    }

    /// Why a transaction came to its end before it was committed, as far as can be learned.
    async fn undone(&self, claim: &Claim) -> Error {
        let name = claim.name.as_str().to_owned();
        let (presented, holder) = (claim.token.get(), self.holder(&claim.name).await);
        let error = match holder.map(|holder| holder.and_then(|holder| holder.token)) {
            Ok(Some(highest)) if highest > presented => {
                PgError::Stale(Stale { presented, highest })
            }
            Ok(token) if token != Some(presented) => PgError::Lost(name),
            _ => PgError::Undone(name),
        };
        error.at(&self.place)
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

/// Whether the server had ended the transaction already.
fn was_idle(error: &tokio_postgres::Error) -> bool {
    error.code() == Some(&SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT)
}

/// The driver sends a request when it is first polled; nobody waits for the answer.
fn send(request: impl Future) {
    drop(pin!(request).poll(&mut Context::from_waker(Waker::noop())));
}
