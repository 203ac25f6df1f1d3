//! A lease, and what it asks of the server.

use std::sync::Arc;

use super::backend::Inner;
use crate::{
    FencedGrant, FencingToken, LockName, Result, Ttl,
    clock::Instant,
    owner::OwnerId,
    spi::{Lease, not_held},
};

/// A lease of a [`Postgres`](super::Postgres) store.
#[derive(Debug)]
pub struct PostgresLease {
    pub(super) store: Arc<Inner>,
    pub(super) name: LockName,
    pub(super) owner: OwnerId,
    pub(super) grant: FencedGrant,
    /// The one that runs; a lock that was handed over has a short one at first.
    pub(super) ttl: Ttl,
    /// The one asked for.
    pub(super) whole_ttl: Ttl,
    pub(super) counted_from: Instant,
}

impl Lease for PostgresLease {
    type Token = FencingToken;

    fn owner(&self) -> OwnerId {
        self.owner
    }

    fn grant(&self) -> FencedGrant {
        self.grant
    }

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
        let limit = self.store.renewal_limit(self.whole_ttl);
        let renewed = self.store.renew(&self.name, self.owner, self.whole_ttl, limit).await?;
        // A late request of ours may have been granted it anew, by a token that nobody was told: this grant has ended.
        let Some((_, counted_from)) = renewed.filter(|(number, _)| *number == self.grant.number)
        else {
            return Err(not_held(&self.name));
        };
        (self.counted_from, self.ttl) = (counted_from, self.whole_ttl);
        Ok(())
    }

    async fn release(&mut self) -> Result<()> {
        match self.store.release(&self.name, self.owner).await? {
            true => Ok(()),
            false => Err(not_held(&self.name)),
        }
    }
}
