//! What can go wrong with the store's files, and what that means to a caller.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use rusqlite::ErrorCode;

use crate::{Error, ErrorKind};

#[derive(Debug, thiserror::Error)]
pub(super) enum LocalError {
    #[error("cannot {what} {path}")]
    Io {
        what: &'static str,
        path: PathBuf,
        #[source]
        error: io::Error,
    },
    #[error(
        "{path} is on {filesystem}, which other machines may share: a store must be on a disk of this machine"
    )]
    Shared { path: PathBuf, filesystem: &'static str },
    #[error(
        "{path} can be used by others (mode {mode:03o}): who can read the store can release any lock; chmod 700 it"
    )]
    NotPrivate { path: PathBuf, mode: u32 },
    #[error(
        "{path} belongs to user {owner}, not to {user}: a store is for the processes of one user"
    )]
    NotOurs { path: PathBuf, owner: u32, user: u32 },
    #[error("{0} is not a folder: a store is a folder of its own")]
    NotAFolder(PathBuf),
    #[error(
        "it was made by a newer version (schema {found}, this one knows {known}): upgrade this program"
    )]
    NewerSchema { found: i64, known: i64 },
    #[error("the file locks.db is not a lock store (application id {0:#x})")]
    Foreign(i64),
    #[error(
        "the database is damaged ({0}): every program that uses it must be stopped and the folder moved away; the new store has a new id, so fences must be told"
    )]
    Damaged(String),
    #[error("it is used in another time namespace since this boot, so clocks cannot be compared")]
    TimeNamespace,
    #[error(
        "the database file was replaced or removed while in use: this process still has the old one"
    )]
    Replaced,
    #[error("no synced tokens are left, and reserving more has failed")]
    NoTokens,
    #[error("too many requests are waiting for the disk or for another process's turn")]
    Overloaded,
    #[error("its worker thread has ended")]
    WorkerEnded,
    #[error(
        "no answer within {limit:?}: another process may be stopped while it has the turn, or the disk hangs"
    )]
    NoAnswer { limit: std::time::Duration, started: bool },
    #[error("the commit failed")]
    Commit(#[source] rusqlite::Error),
    #[error("the database refused")]
    Sql(#[source] rusqlite::Error),
    #[error("a record cannot be read: {0}")]
    Record(String),
    #[error("another request of the same transaction failed, and everything was rolled back")]
    RolledBack,
    #[error(transparent)]
    Batch(#[from] Arc<LocalError>),
}

impl LocalError {
    /// The error that the user sees, naming the store.
    pub(super) fn at(self, folder: &Path) -> Error {
        Error::new(
            self.kind(),
            format!("local store {}: {self}{}", folder.display(), self.advice()),
        )
        .with_source(self)
    }

    /// The same error, of a commit: some leave open whether it took effect.
    pub(super) fn into_commit(self) -> Self {
        match self {
            Self::Sql(error) => Self::Commit(error),
            other => other,
        }
    }

    fn kind(&self) -> ErrorKind {
        match self {
            Self::Shared { .. }
            | Self::NotPrivate { .. }
            | Self::NotOurs { .. }
            | Self::NotAFolder(_)
            | Self::NewerSchema { .. }
            | Self::Foreign(_)
            | Self::TimeNamespace => ErrorKind::Invalid,
            Self::Damaged(_) | Self::Record(_) | Self::Replaced => ErrorKind::Corrupt,
            Self::Io { .. } | Self::NoTokens | Self::Overloaded | Self::RolledBack => {
                ErrorKind::Unavailable
            }
            Self::Batch(error) => error.kind(),
            Self::NoAnswer { started, .. } if !started => ErrorKind::Unavailable,
            Self::NoAnswer { .. } | Self::WorkerEnded => ErrorKind::Indeterminate,
            Self::Sql(error) => kind_of(error, ErrorKind::Unavailable),
            Self::Commit(error) => kind_of(error, ErrorKind::Indeterminate),
        }
    }

    fn advice(&self) -> &'static str {
        match self {
            Self::Io { error, .. } => advice_for_io(error.kind()),
            Self::Sql(error) | Self::Commit(error) => advice_for_sql(error.sqlite_error_code()),
            Self::Batch(error) => error.advice(),
            _ => "",
        }
    }
}

/// What SQLite's answer means; it has rolled back, except for some failures of the commit itself.
fn kind_of(error: &rusqlite::Error, otherwise: ErrorKind) -> ErrorKind {
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => ErrorKind::Corrupt,
        Some(
            ErrorCode::DiskFull
            | ErrorCode::DatabaseBusy
            | ErrorCode::DatabaseLocked
            | ErrorCode::ReadOnly
            | ErrorCode::CannotOpen,
        ) => ErrorKind::Unavailable,
        _ => otherwise,
    }
}

fn advice_for_io(kind: io::ErrorKind) -> &'static str {
    match kind {
        io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => {
            "; it must be writable by this user: choose another folder with local:PATH"
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "; the disk is full: make room"
        }
        io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => {
            "; a store is a folder, and something else is there"
        }
        _ => "",
    }
}

fn advice_for_sql(code: Option<ErrorCode>) -> &'static str {
    match code {
        Some(ErrorCode::DiskFull) => "; the disk is full: make room",
        // What SQLite answers when there is no room for its shared memory.
        Some(ErrorCode::SystemIoFailure) => "; the disk fails or is full: see to it and make room",
        Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => {
            "; it must be writable by this user: choose another folder with local:PATH"
        }
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            "; the file is damaged: stop all its users and move the folder away"
        }
        _ => "",
    }
}

impl From<rusqlite::Error> for LocalError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}
