//! A lease, and what it asks of the nodes.

use std::sync::Arc;

use super::{
    backend::{Claim, GivenBack, Inner, Then},
    ballot::Late,
};
use crate::{
    Identity, LockName, NoToken, Result, Ttl,
    clock::Instant,
    owner::OwnerId,
    spi::{Lease, not_held},
};

/// A lease of a [`Redlock`](super::Redlock) store.
#[derive(Debug)]
pub struct RedlockLease {
    pub(super) store: Arc<Inner>,
    pub(super) name: LockName,
    pub(super) owner: OwnerId,
    pub(super) ttl: Ttl,
    pub(super) counted_from: Instant,
    pub(super) identity: Arc<Identity>,
    /// The place in the lines that it waited from.
    pub(super) place: Option<Vec<u8>>,
    /// The nodes that had not voted yet when it was granted.
    pub(super) late: Late,
}

impl Lease for RedlockLease {
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

    async fn renew(&mut self) -> Result<()> {
        let counted_from = Instant::now();
        let Self { name, owner, ttl, identity, .. } = &*self;
        if !self.store.renew(&Claim { name, owner: *owner, ttl: *ttl, identity }).await? {
            return Err(not_held(&self.name));
        }
        self.counted_from = counted_from;
        Ok(())
    }

    async fn release(&mut self) -> Result<()> {
        let Self { name, owner, ttl, late, .. } = &*self;
        let then = Then::Call(self.place.as_deref());
        let given_back = GivenBack { name, owner: *owner, ttl: *ttl, then, late };
        match self.store.release(given_back).await? {
            true => Ok(()),
            false => Err(not_held(&self.name)),
        }
    }
}
