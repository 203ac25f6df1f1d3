//! Who has a lease, as the store can tell.

use std::{fmt, time::Duration};

use crate::{LockName, owner::OwnerId};

/// What a process says of itself when it asks for a lock; shown to others, never used to decide.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// The machine's host name.
    pub host: Option<String>,
    /// The process id, in the process's own namespace.
    pub pid: Option<u32>,
    /// A free text of the user's, such as a job's name; at most [`Identity::LABEL_MAX_BYTES`] bytes.
    pub label: Option<String>,
}

impl Identity {
    /// The longest label, in bytes.
    pub const LABEL_MAX_BYTES: usize = 256;
}

/// What a store tells about the present holder of a lock.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HolderInfo {
    /// What is held.
    pub name: LockName,
    /// The first eight digits of the owner id: whoever has all of it could release.
    pub owner: String,
    /// The fencing token, from a fenced store.
    pub token: Option<u64>,
    /// What the holder said of itself.
    pub identity: Identity,
    /// How long it has been held, by the store's clock.
    pub held_for: Option<Duration>,
    /// How long it is held yet unless renewed, by the store's clock.
    pub ends_in: Option<Duration>,
    /// Whether the lock was broken: no renewal is taken any more.
    pub broken: bool,
}

impl HolderInfo {
    /// The least that a store can tell; the other fields are filled in where it knows them.
    #[must_use]
    pub fn new(name: LockName, owner: &OwnerId) -> Self {
        Self {
            name,
            owner: owner.short(),
            token: None,
            identity: Identity::default(),
            held_for: None,
            ends_in: None,
            broken: false,
        }
    }
}

impl fmt::Display for HolderInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "held by {}", self.identity.host.as_deref().unwrap_or("an unknown host"))?;
        if let Some(pid) = self.identity.pid {
            write!(f, " pid {pid}")?;
        }
        if let Some(label) = &self.identity.label {
            write!(f, " ({label})")?;
        }
        if let Some(held_for) = self.held_for {
            write!(f, " for {:.1} s", held_for.as_secs_f64())?;
        }
        match self.token {
            Some(token) => write!(f, ", token {token}"),
            None => Ok(()),
        }
    }
}
