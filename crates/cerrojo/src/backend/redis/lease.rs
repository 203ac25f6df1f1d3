//! A lease, and what it asks of the server.

use std::sync::Arc;

use super::{backend::Inner, format::Keys};
use crate::{
    LockName, NoToken, Result, Ttl,
    clock::Instant,
    owner::OwnerId,
    spi::{Lease, not_held},
};

/// A lease of a [`Redis`](super::Redis) store.
#[derive(Debug)]
pub struct RedisLease {
    pub(super) store: Arc<Inner>,
    pub(super) name: LockName,
    pub(super) owner: OwnerId,
    /// The one that runs; a lock that was handed over has a short one at first.
    pub(super) ttl: Ttl,
    /// The one asked for.
    pub(super) whole_ttl: Ttl,
    pub(super) counted_from: Instant,
}

impl RedisLease {
    fn keys(&self) -> Result<Keys> {
        self.store.keys(&self.name)
    }
}

impl Lease for RedisLease {
    type Token = NoToken;

    fn owner(&self) -> OwnerId {
        self.owner
    }

    fn grant(&self) {}

    fn counted_from(&self) -> Instant {
        self.counted_from
    }

    fn ttl(&self) -> Ttl {
        self.ttl
    }

    fn is_provisional(&self) -> bool {
        self.ttl < self.whole_ttl
    }

    async fn renew(&mut self) -> Result<()> {
        let counted_from = Instant::now();
        if !self.store.renew(&self.keys()?, self.owner, self.whole_ttl).await? {
            return Err(not_held(&self.name));
        }
        (self.counted_from, self.ttl) = (counted_from, self.whole_ttl);
        Ok(())
    }

    async fn release(&mut self) -> Result<()> {
        match self.store.release(&self.keys()?, self.owner).await? {
            true => Ok(()),
            false => Err(not_held(&self.name)),
        }
    }
}
