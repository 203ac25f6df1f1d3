//! A lease of the embedded store.

use std::sync::Arc;

use super::backend::Inner;
use crate::{
    FencedGrant, FencingToken, LockName, Result, Ttl,
    clock::Instant,
    owner::OwnerId,
    spi::{Lease, not_held},
};

/// A lease of a [`Local`](super::Local) store.
#[derive(Debug)]
pub struct LocalLease {
    pub(super) store: Arc<Inner>,
    pub(super) name: LockName,
    pub(super) owner: OwnerId,
    pub(super) grant: FencedGrant,
    pub(super) ttl: Ttl,
    pub(super) counted_from: Instant,
}

impl Lease for LocalLease {
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

    async fn renew(&mut self) -> Result<()> {
        let counted_from = Instant::now();
        let (name, owner, ttl_ns) =
            (self.name.clone(), self.owner, super::backend::nanos(self.ttl));
        if !self.store.call(move |tables| tables.prolong(&name, owner, ttl_ns)).await? {
            return Err(not_held(&self.name));
        }
        self.counted_from = counted_from;
        Ok(())
    }

    async fn release(&mut self) -> Result<()> {
        let (name, owner) = (self.name.clone(), self.owner);
        let released = self.store.call(move |tables| tables.release(&name, owner)).await?;
        if released { Ok(()) } else { Err(not_held(&self.name)) }
    }
}
