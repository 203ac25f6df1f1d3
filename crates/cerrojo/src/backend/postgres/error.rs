//! What can go wrong with a server, and what that means to a caller.

use std::{error::Error as StdError, io, path::PathBuf, sync::Arc, time::Duration};

use tokio_postgres::error::SqlState;

use crate::{Error, ErrorKind, fence::Stale};

#[derive(Debug, thiserror::Error)]
pub(super) enum PgError {
    #[error("{0}")]
    Config(String),
    #[error("cannot read {path}: {error}")]
    Pem {
        path: PathBuf,
        #[source]
        error: io::Error,
    },
    #[error("no certificate to trust: {0}")]
    Roots(String),
    #[error("TLS cannot be set up: {0}")]
    Tls(#[source] rustls::Error),
    #[error("cannot connect{}", said(.0))]
    Dial(#[source] tokio_postgres::Error),
    #[error("no connection within {0:?}")]
    DialTooSlow(Duration),
    /// One failure of several requests.
    #[error(transparent)]
    Shared(Arc<PgError>),
    #[error("the call failed{}", said(.0))]
    Call(#[source] tokio_postgres::Error),
    #[error("the tables were not made{}", said(.0))]
    Init(#[source] tokio_postgres::Error),
    #[error("the server has closed the connection")]
    Closed,
    #[error("no answer within {0:?}")]
    NoAnswer(Duration),
    #[error("the request was not sent within {0:?}: earlier ones are still under way")]
    NotSent(Duration),
    #[error(
        "nothing is heard within {0:?}, as behind a pooler in transaction mode; `listen=HOST:PORT` goes past it"
    )]
    Deaf(Duration),
    #[error("whoever was sending the request has gone with its runtime")]
    Abandoned,
    #[error("an answer that no store of locks gives: {0}")]
    Answer(String),
    #[error("no store of locks {0}: run `cerrojo store init`, or Postgres::builder(url).init()")]
    NoStore(String),
    #[error(
        "the store has schema {0}, which this version does not know: run `cerrojo store init` of the newer version everywhere"
    )]
    Version(i32),
    #[error(
        "the store was brought here from another cluster, as by pg_upgrade or a dump, and its tokens would begin anew: `cerrojo store init` makes it another store, of which fences must be told"
    )]
    Moved,
    #[error(
        "it is a standby, which takes no locks: name the primary, or all servers of the cluster"
    )]
    Standby,
    #[error("the database's encoding is {0}: names of locks need UTF8")]
    Encoding(String),
    #[error(
        "the store behind this address is another one than before, which counts its tokens anew"
    )]
    AnotherStore,
    #[error("somebody's transaction holds the row of `{0}`")]
    Busy(String),
    #[error("{0}")]
    Stale(Stale),
    #[error("`{0}` is not held by this owner any more")]
    Lost(String),
    #[error(
        "the connection ended before the commit, and nothing was changed; `{0}` may be held still"
    )]
    Undone(String),
}

/// Codes of our own functions.
const NOT_READ_COMMITTED: &str = "CR001";
pub(super) const STALE: &str = "CR002";
pub(super) const LOST: &str = "CR003";
const NEWER: &str = "CR004";
const OTHER_TABLES: &str = "CR006";

/// What will never work until somebody changes something.
const NEVER: [SqlState; 12] = [
    SqlState::INVALID_PASSWORD,
    SqlState::INVALID_AUTHORIZATION_SPECIFICATION,
    SqlState::INVALID_CATALOG_NAME,
    SqlState::INVALID_SCHEMA_NAME,
    SqlState::UNDEFINED_TABLE,
    SqlState::UNDEFINED_FUNCTION,
    SqlState::UNDEFINED_COLUMN,
    SqlState::UNDEFINED_OBJECT,
    SqlState::INSUFFICIENT_PRIVILEGE,
    SqlState::SYNTAX_ERROR,
    SqlState::SEQUENCE_GENERATOR_LIMIT_EXCEEDED,
    SqlState::FEATURE_NOT_SUPPORTED,
];

/// What may have come after the commit.
const UNKNOWN: [SqlState; 3] =
    [SqlState::ADMIN_SHUTDOWN, SqlState::CRASH_SHUTDOWN, SqlState::TRANSACTION_RESOLUTION_UNKNOWN];

/// After which all connections are greeted anew: a primary that has become a standby, for another one is the primary now; and tables
/// that were dropped, for those that come after them are another store.
const ANOTHER: [&str; 5] = ["25006", "42883", "42P01", "3F000", OTHER_TABLES];

impl PgError {
    /// The error that the user sees, naming the server.
    pub(super) fn at(self, place: &str) -> Error {
        let message = format!("postgres at {place}: {self}{}", self.advice());
        let error = Error::new(self.kind(), message);
        match self {
            Self::Stale(stale) => error.with_source(stale),
            other => error.with_source(other),
        }
    }

    /// The same of the first connection: a standby there was named by mistake, one that is there later is a failover under way.
    pub(super) fn at_first(self, place: &str) -> Error {
        let message = format!("postgres at {place}: {self}{}", self.advice());
        let kind = if self.is_standby() { ErrorKind::Invalid } else { self.kind() };
        Error::new(kind, message).with_source(self)
    }

    /// For what is wrong before there is a server.
    pub(super) fn plain(self) -> Error {
        Error::new(self.kind(), format!("postgres: {self}")).with_source(self)
    }

    /// The same while the tables are made.
    pub(super) fn of_init(self) -> Self {
        match self {
            Self::Call(error) => Self::Init(error),
            other => other,
        }
    }

    fn is_standby(&self) -> bool {
        match self {
            Self::Standby => true,
            Self::Init(error) => error.code() == Some(&SqlState::READ_ONLY_SQL_TRANSACTION),
            Self::Shared(error) => error.is_standby(),
            _ => false,
        }
    }

    /// Whether the connection is as good as before: the server has answered, if by an error.
    pub(super) fn leaves_connection(&self) -> bool {
        match self {
            Self::Call(error) => {
                let code = error.code();
                code.is_some_and(|code| !UNKNOWN.contains(code) && !ANOTHER.contains(&code.code()))
            }
            _ => false,
        }
    }

    /// Whether another store may be there, or comes to be.
    pub(super) fn doubts_store(&self) -> bool {
        match self {
            Self::Call(error) => error.code().is_some_and(|code| ANOTHER.contains(&code.code())),
            _ => false,
        }
    }

    /// Whether a row was not to be had in time.
    pub(super) fn is_impatience(&self) -> bool {
        matches!(self, Self::Call(error) if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE))
    }

    pub(super) fn kind(&self) -> ErrorKind {
        match self {
            Self::Config(_)
            | Self::Pem { .. }
            | Self::Roots(_)
            | Self::Tls(_)
            | Self::NoStore(_)
            | Self::Version(_)
            | Self::Encoding(_) => ErrorKind::Invalid,
            Self::AnotherStore | Self::Moved => ErrorKind::Corrupt,
            Self::Dial(error) => kind_of_dial(error),
            Self::Shared(error) => error.kind(),
            Self::DialTooSlow(_)
            | Self::Standby
            | Self::Busy(_)
            | Self::NotSent(_)
            | Self::Deaf(_)
            | Self::Undone(_) => ErrorKind::Unavailable,
            Self::Call(error) | Self::Init(error) => kind_of_call(error),
            Self::Closed | Self::NoAnswer(_) | Self::Abandoned | Self::Answer(_) => {
                ErrorKind::Indeterminate
            }
            Self::Stale(_) | Self::Lost(_) => ErrorKind::Lost,
        }
    }

    fn advice(&self) -> &'static str {
        match self {
            Self::Shared(error) => error.advice(),
            Self::DialTooSlow(_) => "; is it the right host and port, and is the server running?",
            Self::Dial(error) if is_of_tls(error) => {
                "; TLS is refused: `sslmode`, `sslrootcert`, `sslcert` and `sslkey` have to suit the server"
            }
            Self::Init(error) if error.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE) => {
                "; that is for a role with CREATE on the database, or for the one that owns the schema and what is in it"
            }
            Self::Dial(error) if is_of_another_kind(error) => "; is it a PostgreSQL server?",
            Self::Dial(error) | Self::Call(error) | Self::Init(error) => advice(error),
            _ => "",
        }
    }
}

/// What the server or the system said, which the driver leaves to the source.
fn said(error: &tokio_postgres::Error) -> String {
    match error.as_db_error() {
        Some(said) => {
            format!(": {}: {} (SQLSTATE {})", said.severity(), said.message(), said.code().code())
        }
        None => match error.source() {
            Some(source) => format!(": {source}"),
            None => format!(": {error}"),
        },
    }
}

/// Nothing was sent.
fn kind_of_dial(error: &tokio_postgres::Error) -> ErrorKind {
    match error.code() {
        Some(code) if NEVER.contains(code) => ErrorKind::Invalid,
        Some(_) => ErrorKind::Unavailable,
        None if is_of_io(error) => ErrorKind::Unavailable,
        // A name that TLS does not take, an authentication that is not offered: a setting.
        None => ErrorKind::Invalid,
    }
}

fn kind_of_call(error: &tokio_postgres::Error) -> ErrorKind {
    let Some(code) = error.code() else {
        return ErrorKind::Indeterminate;
    };
    match code {
        code if NEVER.contains(code) => ErrorKind::Invalid,
        code if UNKNOWN.contains(code) => ErrorKind::Indeterminate,
        code if [NOT_READ_COMMITTED, NEWER].contains(&code.code()) => ErrorKind::Invalid,
        code if [STALE, LOST].contains(&code.code()) => ErrorKind::Lost,
        code if ["XX001", "XX002"].contains(&code.code()) => ErrorKind::Corrupt,
        // An error has undone its transaction.
        _ => ErrorKind::Unavailable,
    }
}

fn is_of_io(error: &tokio_postgres::Error) -> bool {
    io_cause(error).map_or_else(|| error.is_closed(), |cause| !is_of_rustls(cause))
}

fn is_of_tls(error: &tokio_postgres::Error) -> bool {
    error.to_string().contains("TLS") || io_cause(error).is_some_and(is_of_rustls)
}

/// What is said there is not to be understood.
fn is_of_another_kind(error: &tokio_postgres::Error) -> bool {
    use io::ErrorKind::{InvalidData, InvalidInput, Other};
    io_cause(error).is_some_and(|cause| {
        matches!(cause.kind(), InvalidData | InvalidInput | Other) && !is_of_rustls(cause)
    })
}

fn io_cause(error: &tokio_postgres::Error) -> Option<&io::Error> {
    let mut source = error.source();
    while let Some(cause) = source {
        if let Some(error) = cause.downcast_ref() {
            return Some(error);
        }
        source = cause.source();
    }
    None
}

fn is_of_rustls(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<rustls::Error>())
}

fn advice(error: &tokio_postgres::Error) -> &'static str {
    let Some(code) = error.code() else {
        return "";
    };
    match code.code() {
        "28P01" | "28000" => "; user, password or pg_hba.conf is wrong",
        "3D000" => "; create the database, or name another",
        "3F000" | "42883" | "42P01" => {
            "; run `cerrojo store init`, or Postgres::builder(url).init()"
        }
        "42501" => "; `cerrojo store init --grant ROLE` gives a role what it needs",
        "53300" => "; it has no connection left: raise max_connections, or go through a pooler",
        "53100" => "; its disk is full",
        "25006" => {
            "; it is a standby or read-only: name the primary, or all servers of the cluster"
        }
        NOT_READ_COMMITTED => {
            "; ALTER ROLE ... SET default_transaction_isolation = 'read committed'"
        }
        "08P01" => "; behind PgBouncer leave out startup parameters that it does not know",
        _ => "",
    }
}
