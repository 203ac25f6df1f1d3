//! What backends can do, and not all of them.

use std::fmt;

use crate::Ttl;

/// Something that not every backend can do. A case that needs it is left out for those that cannot.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capability {
    /// Every grant carries a number greater than all before it.
    Fenced,
    /// Waiters of several connections are served in the order in which they came.
    Fifo,
    /// Several processes reach the same store.
    Processes,
    /// The harness can cut the store off.
    Sever,
    /// A lease is passed on before its TTL ends once what it is bound to is proved to be gone.
    ProofOfDeath,
    /// A refusal says who holds the lock, with process id and label.
    NamesHolder,
}

impl Capability {
    /// What a reader of the table sees.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Fenced => "fenced",
            Self::Fifo => "fifo",
            Self::Processes => "processes",
            Self::Sever => "sever",
            Self::ProofOfDeath => "proof-of-death",
            Self::NamesHolder => "names-holder",
        }
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// What one backend can do, and its bounds.
#[derive(Clone, Debug)]
pub struct Capabilities {
    has: Vec<Capability>,
    pub(crate) ttl_min: Ttl,
    pub(crate) ttl_max: Ttl,
    pub(crate) descriptors_max: usize,
}

impl Capabilities {
    /// Nothing beyond what every backend can do; all TTLs, and not one descriptor more for a thousand locks.
    #[must_use]
    pub fn none() -> Self {
        Self { has: Vec::new(), ttl_min: Ttl::MIN, ttl_max: Ttl::MAX, descriptors_max: 0 }
    }

    /// The same and this.
    #[must_use]
    pub fn with(mut self, capability: Capability) -> Self {
        self.has.push(capability);
        self
    }

    /// The TTLs that the store grants.
    #[must_use]
    pub fn with_ttls(mut self, min: Ttl, max: Ttl) -> Self {
        (self.ttl_min, self.ttl_max) = (min, max);
        self
    }

    /// How many file descriptors a connection may open beyond those that it has once it has granted one lock,
    /// for any number of locks and waiters.
    #[must_use]
    pub fn with_descriptors_max(mut self, descriptors_max: usize) -> Self {
        self.descriptors_max = descriptors_max;
        self
    }

    /// Whether the backend can do this.
    #[must_use]
    pub fn has(&self, capability: Capability) -> bool {
        self.has.contains(&capability)
    }
}
