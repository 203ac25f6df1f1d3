//! Fences in a table, for resources that are kept in any PostgreSQL database.
//!
//! The fence's row is checked, raised and locked by the first statement of the user's own transaction: check and access are one step. It knows nothing
//! of where the lock is. (Where the lock is in the very database, a [guarded transaction](crate::backend::postgres::Postgres::transaction)
//! needs no fence.) `sql/fence.sql` is all of it, for programs in other languages.
//!
//! ```no_run
//! # use cerrojo::{FencedGuard, fence::postgres::FenceTable};
//! # async fn book(guard: FencedGuard, mut client: tokio_postgres::Client) -> Result<(), Box<dyn std::error::Error>> {
//! let fence = FenceTable::default();
//! fence.init(&mut client, &["app"]).await?;      // once
//!
//! let transaction = client.transaction().await?;
//! fence.admit(&transaction, guard.store_id(), "account/7", guard.token()).await?;
//! transaction.execute("UPDATE account SET balance = balance - 10 WHERE id = 7", &[]).await?;
//! transaction.commit().await?;
//! # Ok(())
//! # }
//! ```

use std::error::Error as StdError;

use tokio_postgres::{
    Client, GenericClient, Transaction,
    error::SqlState,
    types::{ToSql, Type},
};

use super::{PresentedToken, Stale};
use crate::{
    StoreId,
    error::{Error, ErrorKind, Result},
    sql::{Names, quoted_role},
};

const TABLE: &str = include_str!("sql/fence.sql");
const GRANT: &str = include_str!("sql/grant.sql");
const ADMIT: &str = "SELECT \"cerrojo\".\"fence_admit\"($1::uuid, $2, $3)";
const ADOPT: &str = "SELECT \"cerrojo\".\"fence_adopt\"($1::uuid, $2)";

/// Codes of our own functions.
const STALE: &str = "CR002";
const OTHER_STORE: &str = "CR005";

/// What says that somebody else was there at the same time.
const BUSY: [SqlState; 3] = [
    SqlState::T_R_SERIALIZATION_FAILURE,
    SqlState::T_R_DEADLOCK_DETECTED,
    SqlState::LOCK_NOT_AVAILABLE,
];

/// Why a transaction was not admitted. It can only be rolled back.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// The holder has been overtaken. Do nothing more for it.
    #[error(transparent)]
    Stale(#[from] Stale),
    /// The token was granted by another store than those before: which of them is newer, nobody can say.
    ///
    /// When the store was replaced on purpose, tell the fence by [`FenceTable::adopt`].
    #[error(
        "the fence of {resource:?} counts tokens of store {expected}, and the token presented is of store {presented}: if the store was \
         replaced, the fence has to adopt the new one first"
    )]
    OtherStore {
        /// What is guarded.
        resource: String,
        /// The store that the fence knows.
        expected: StoreId,
        /// The store that was named with the token.
        presented: StoreId,
    },
    /// Somebody else was at the fence: a serialization failure, a deadlock, a `lock_timeout`. Roll back and begin the transaction anew.
    #[error(
        "somebody else was at the fence of {resource:?} at the same time: begin the transaction anew"
    )]
    Busy {
        /// What is guarded.
        resource: String,
        /// The driver's error.
        source: Box<dyn StdError + Send + Sync>,
    },
    /// The server refused, or could not be asked.
    #[error("cannot {what}{}", said(&**source))]
    Failed {
        /// What was being done.
        what: &'static str,
        /// The driver's error.
        source: Box<dyn StdError + Send + Sync>,
    },
}

/// Fences in a table, `cerrojo.fence` unless named otherwise: a row for each resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FenceTable {
    names: Names,
}

impl Default for FenceTable {
    fn default() -> Self {
        Self { names: Names::of("fence") }
    }
}

impl FenceTable {
    /// A table of this name in this schema: each 1 to 40 of a-z, 0-9 and _.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] for other names.
    pub fn named(schema: impl Into<String>, table: impl Into<String>) -> Result<Self> {
        let names = Names::of("fence").with_schema(schema.into());
        let names = names.and_then(|names| names.with_table(table.into()));
        Ok(Self { names: names.map_err(|why| Error::new(ErrorKind::Invalid, why))? })
    }

    /// Makes the table and its functions, and lets `roles` use them: in one transaction, as often as one likes, also when many start at once.
    ///
    /// The role needs CREATE on the database, or on the schema where that exists; it owns the fences from then on.
    ///
    /// # Errors
    ///
    /// [`TableError::Failed`]. Nothing is half done.
    ///
    /// # Cancel safety
    ///
    /// When dropped, it takes effect wholly or not at all.
    pub async fn init(&self, client: &mut Client, roles: &[&str]) -> Result<(), TableError> {
        let what = "make the fence table";
        let failed = |error: tokio_postgres::Error| TableError::failed(what, error);
        let text = self.text(roles).map_err(|error| TableError::failed(what, error))?;
        let transaction = client.transaction().await.map_err(failed)?;
        transaction.batch_execute(&text).await.map_err(failed)?;
        transaction.commit().await.map_err(failed)
    }

    /// What [`FenceTable::init`] would run, for somebody to read and apply.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] for a role without a name.
    pub fn init_sql(&self, roles: &[&str]) -> Result<String> {
        Ok(format!("BEGIN;\n{}COMMIT;\n", self.text(roles)?))
    }

    fn text(&self, roles: &[&str]) -> Result<String> {
        let roles: Result<Vec<_>> = roles.iter().map(|role| quoted_role(role)).collect();
        let grants =
            roles?.into_iter().map(|role| self.names.fill_in(GRANT).replace("\"a_role\"", &role));
        Ok(self.names.fill_in(TABLE) + &grants.collect::<String>())
    }

    /// Admits a token that is not smaller than the greatest seen of this resource, and remembers it when the transaction commits.
    ///
    /// Call it before anything else in every transaction that touches the resource, also in one that only reads, and commit that too: a rolled
    /// back transaction raises nothing, so what was read in it may be overwritten by somebody older. At any isolation level, but not in a READ
    /// ONLY transaction.
    ///
    /// It waits for whoever was admitted before, older or of the same token, until that transaction ends; no longer than the session's
    /// `lock_timeout`. Who is to be admitted to several resources goes through them in one order, as with any rows. The resource is named by
    /// 1 to 1024 bytes without a NUL; the first token tells its fence the store.
    ///
    /// # Errors
    ///
    /// [`TableError::Stale`] and [`TableError::OtherStore`]: do nothing for this holder. [`TableError::Busy`]: begin anew. In any case the
    /// transaction can only be rolled back.
    ///
    /// # Cancel safety
    ///
    /// When dropped, roll the transaction back.
    pub async fn admit(
        &self,
        transaction: &Transaction<'_>,
        store: StoreId,
        resource: &str,
        token: impl Into<PresentedToken>,
    ) -> Result<(), TableError> {
        let token = token.into().get();
        let number = i64::try_from(token).unwrap_or(i64::MAX);
        let parameters: [(&(dyn ToSql + Sync), Type); 3] =
            [(&store.to_string(), Type::TEXT), (&resource, Type::TEXT), (&number, Type::INT8)];
        let admitted = transaction.query_typed(&self.names.fill_in(ADMIT), &parameters).await;
        admitted.map(drop).map_err(|error| refused(error, store, resource, token))
    }

    /// From now on the resource's fence counts tokens of `store`, from the first: the store before it was replaced.
    ///
    /// The fence forgets the greatest token of the old store, so make sure that nobody who holds one is still at work.
    /// To adopt the store that it knows changes nothing. Only the role that owns the fences may.
    ///
    /// # Errors
    ///
    /// [`TableError::Busy`], [`TableError::Failed`].
    ///
    /// # Cancel safety
    ///
    /// When dropped, it may or may not take effect.
    pub async fn adopt(
        &self,
        client: &impl GenericClient,
        store: StoreId,
        resource: &str,
    ) -> Result<(), TableError> {
        let parameters: [(&(dyn ToSql + Sync), Type); 2] =
            [(&store.to_string(), Type::TEXT), (&resource, Type::TEXT)];
        let adopted = client.query_typed(&self.names.fill_in(ADOPT), &parameters).await;
        adopted.map(drop).map_err(|error| not_done("adopt a store", error, resource))
    }
}

impl TableError {
    fn failed(what: &'static str, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self::Failed { what, source: source.into() }
    }
}

fn refused(
    error: tokio_postgres::Error,
    presented: StoreId,
    resource: &str,
    token: u64,
) -> TableError {
    let code = error.code().map(SqlState::code);
    let detail = error.as_db_error().and_then(|said| said.detail()).unwrap_or_default();
    match (code, detail.parse(), detail.replace('-', "").parse()) {
        (Some(STALE), Ok(highest), _) => Stale { presented: token, highest }.into(),
        (Some(OTHER_STORE), _, Ok(expected)) => {
            TableError::OtherStore { resource: resource.to_owned(), expected, presented }
        }
        _ => not_done("pass the fence", error, resource),
    }
}

fn not_done(what: &'static str, error: tokio_postgres::Error, resource: &str) -> TableError {
    if error.code().is_some_and(|code| BUSY.contains(code)) {
        return TableError::Busy { resource: resource.to_owned(), source: error.into() };
    }
    TableError::failed(what, error)
}

/// What the server said, which the driver leaves to the source, and what to do.
fn said(error: &(dyn StdError + Send + Sync + 'static)) -> String {
    let of_server =
        error.downcast_ref::<tokio_postgres::Error>().and_then(|error| error.as_db_error());
    let Some(said) = of_server else {
        return format!(": {error}");
    };
    let advice = match said.code().code() {
        "3F000" | "42883" | "42P01" => "; FenceTable::init makes what is missing",
        "42501" => "; FenceTable::init gives a role what it needs",
        "25006" => {
            "; a fence is raised by reads too: not in a READ ONLY transaction, nor on a standby"
        }
        _ => "",
    };
    format!(": {} (SQLSTATE {}){advice}", said.message(), said.code().code())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_roles_of_ones_own_are_put_in_everywhere() {
        let text = FenceTable::named("app", "gate").unwrap().init_sql(&["a\"b", "c"]).unwrap();
        for word in ["\"cerrojo\"", "\"fence", "a_role"] {
            assert!(!text.contains(word), "{word}");
        }
        for word in ["\"app\".\"gate_admit\"", "TO \"a\"\"b\"", "TO \"c\"", "BEGIN;\n", "COMMIT;\n"]
        {
            assert!(text.contains(word), "{word}");
        }
        assert!(FenceTable::named("app", "ga te").is_err());
        assert!(FenceTable::default().init_sql(&[""]).is_err());
    }
}
