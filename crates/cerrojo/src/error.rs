//! One error type; its kind says what the caller should do.

use std::{error::Error as StdError, fmt};

use crate::{holder::HolderInfo, name::InvalidName, validity::InvalidTtl};

/// The result of everything that asks a store.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What the caller should do, not what the driver said.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// Someone else held the lock until the deadline. Try again later, or skip the work.
    Contended,
    /// The lease is not ours any more. Stop touching the resource.
    Lost,
    /// The store could not be asked, and nothing was done. Safe to try again.
    Unavailable,
    /// The request may or may not have taken effect. Assume the worse of the two.
    Indeterminate,
    /// A name, TTL, URL or setting is wrong. Trying again does not help.
    Invalid,
    /// The store's data contradict themselves. A person has to look.
    Corrupt,
}

impl ErrorKind {
    /// The kind as a metrics label and in JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Contended => "contended",
            Self::Lost => "lost",
            Self::Unavailable => "unavailable",
            Self::Indeterminate => "indeterminate",
            Self::Invalid => "invalid",
            Self::Corrupt => "corrupt",
        }
    }
}

/// What went wrong, and what to do about it.
///
/// `Display` says what was wrong and where; the driver's own error is the [`source`](StdError::source).
pub struct Error(Box<Inner>);

#[derive(Debug)]
struct Inner {
    kind: ErrorKind,
    message: String,
    holder: Option<HolderInfo>,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl Error {
    /// An error of `kind`, with a message that says what was wrong, where, and what to do.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self(Box::new(Inner { kind, message: message.into(), holder: None, source: None }))
    }

    /// Adds the error that caused this one.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// Adds who holds the lock.
    #[must_use]
    pub fn with_holder(mut self, holder: Option<HolderInfo>) -> Self {
        self.0.holder = holder;
        self
    }

    /// What the caller should do.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Who held the lock when the request was refused, where the store can tell.
    #[must_use]
    pub fn holder(&self) -> Option<&HolderInfo> {
        self.0.holder.as_ref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)?;
        match &self.0.holder {
            Some(holder) => write!(f, ": {holder}"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|source| source as &(dyn StdError + 'static))
    }
}

impl From<InvalidName> for Error {
    fn from(why: InvalidName) -> Self {
        Self::new(ErrorKind::Invalid, why.to_string())
    }
}

impl From<InvalidTtl> for Error {
    fn from(why: InvalidTtl) -> Self {
        Self::new(ErrorKind::Invalid, why.to_string())
    }
}

impl From<std::convert::Infallible> for Error {
    fn from(never: std::convert::Infallible) -> Self {
        match never {}
    }
}
