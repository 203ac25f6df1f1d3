//! The dyn twin of spi.rs, for a backend chosen at run time.

use std::{fmt::Debug, future::Future, pin::Pin};

use crate::{
    HolderInfo, LockName, Result, Token, Ttl,
    clock::Instant,
    owner::OwnerId,
    spi::{Acquired, Backend, Break, Inspect, Lease, Request},
};

type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

trait DynBackend<T: Token>: Debug + Send + Sync + 'static {
    fn kind(&self) -> &'static str;
    fn acquire<'a>(
        &'a self,
        request: &'a Request,
    ) -> BoxFuture<'a, Result<Acquired<ErasedLease<T>>>>;
    fn give_back<'a>(&'a self, name: &'a LockName, owner: OwnerId) -> BoxFuture<'a, Result<()>>;
    fn resume<'a>(
        &'a self,
        name: &'a LockName,
        owner: OwnerId,
        ttl: Ttl,
    ) -> BoxFuture<'a, Result<ErasedLease<T>>>;
    fn list<'a>(
        &'a self,
        after: Option<&'a LockName>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<HolderInfo>>>;
    fn holder<'a>(&'a self, name: &'a LockName) -> BoxFuture<'a, Result<Option<HolderInfo>>>;
    fn break_lock<'a>(
        &'a self,
        name: &'a LockName,
        when: Break,
    ) -> BoxFuture<'a, Result<Option<HolderInfo>>>;
    fn prune(&self) -> BoxFuture<'_, Result<u64>>;
}

trait DynLease<T: Token>: Debug + Send + 'static {
    fn owner(&self) -> OwnerId;
    fn grant(&self) -> T::Grant;
    fn counted_from(&self) -> Instant;
    fn ttl(&self) -> Ttl;
    fn is_provisional(&self) -> bool;
    fn renew(&mut self) -> BoxFuture<'_, Result<()>>;
    fn release(&mut self) -> BoxFuture<'_, Result<()>>;
    fn ended(&mut self) -> BoxFuture<'_, ()>;
}

/// A backend whose type is forgotten, but not what its locks promise.
#[derive(Debug)]
pub struct Erased<T: Token>(Box<dyn DynBackend<T>>);

/// A lease of an [`Erased`] backend.
#[derive(Debug)]
pub struct ErasedLease<T: Token>(Box<dyn DynLease<T>>);

impl<T: Token> Erased<T> {
    /// Forgets the backend's type.
    pub fn new<B: Backend<Lease: Lease<Token = T>>>(backend: B) -> Self {
        Self(Box::new(backend))
    }
}

impl<T: Token, B: Backend<Lease: Lease<Token = T>>> DynBackend<T> for B {
    fn kind(&self) -> &'static str {
        Backend::kind(self)
    }

    fn acquire<'a>(
        &'a self,
        request: &'a Request,
    ) -> BoxFuture<'a, Result<Acquired<ErasedLease<T>>>> {
        Box::pin(async move {
            Ok(match Backend::acquire(self, request).await? {
                Acquired::Granted(lease) => Acquired::Granted(ErasedLease(Box::new(lease))),
                Acquired::Refused(refusal) => Acquired::Refused(refusal),
            })
        })
    }

    fn give_back<'a>(&'a self, name: &'a LockName, owner: OwnerId) -> BoxFuture<'a, Result<()>> {
        Box::pin(Backend::give_back(self, name, owner))
    }

    fn resume<'a>(
        &'a self,
        name: &'a LockName,
        owner: OwnerId,
        ttl: Ttl,
    ) -> BoxFuture<'a, Result<ErasedLease<T>>> {
        Box::pin(async move {
            let lease = Backend::resume(self, name, owner, ttl).await?;
            Ok(ErasedLease(Box::new(lease) as Box<dyn DynLease<T>>))
        })
    }

    fn list<'a>(
        &'a self,
        after: Option<&'a LockName>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<HolderInfo>>> {
        Box::pin(Inspect::list(self, after, limit))
    }

    fn holder<'a>(&'a self, name: &'a LockName) -> BoxFuture<'a, Result<Option<HolderInfo>>> {
        Box::pin(Inspect::holder(self, name))
    }

    fn break_lock<'a>(
        &'a self,
        name: &'a LockName,
        when: Break,
    ) -> BoxFuture<'a, Result<Option<HolderInfo>>> {
        Box::pin(Inspect::break_lock(self, name, when))
    }

    fn prune(&self) -> BoxFuture<'_, Result<u64>> {
        Box::pin(Inspect::prune(self))
    }
}

impl<T: Token, L: Lease<Token = T>> DynLease<T> for L {
    fn owner(&self) -> OwnerId {
        Lease::owner(self)
    }

    fn grant(&self) -> T::Grant {
        Lease::grant(self)
    }

    fn counted_from(&self) -> Instant {
        Lease::counted_from(self)
    }

    fn ttl(&self) -> Ttl {
        Lease::ttl(self)
    }

    fn is_provisional(&self) -> bool {
        Lease::is_provisional(self)
    }

    fn renew(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(Lease::renew(self))
    }

    fn release(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(Lease::release(self))
    }

    fn ended(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(Lease::ended(self))
    }
}

impl<T: Token> Backend for Erased<T> {
    type Lease = ErasedLease<T>;

    fn kind(&self) -> &'static str {
        self.0.kind()
    }

    async fn acquire(&self, request: &Request) -> Result<Acquired<ErasedLease<T>>> {
        self.0.acquire(request).await
    }

    async fn give_back(&self, name: &LockName, owner: OwnerId) -> Result<()> {
        self.0.give_back(name, owner).await
    }

    async fn resume(&self, name: &LockName, owner: OwnerId, ttl: Ttl) -> Result<ErasedLease<T>> {
        self.0.resume(name, owner, ttl).await
    }
}

impl<T: Token> Inspect for Erased<T> {
    async fn list(&self, after: Option<&LockName>, limit: usize) -> Result<Vec<HolderInfo>> {
        self.0.list(after, limit).await
    }

    async fn holder(&self, name: &LockName) -> Result<Option<HolderInfo>> {
        self.0.holder(name).await
    }

    async fn break_lock(&self, name: &LockName, when: Break) -> Result<Option<HolderInfo>> {
        self.0.break_lock(name, when).await
    }

    async fn prune(&self) -> Result<u64> {
        self.0.prune().await
    }
}

impl<T: Token> Lease for ErasedLease<T> {
    type Token = T;

    fn owner(&self) -> OwnerId {
        self.0.owner()
    }

    fn grant(&self) -> T::Grant {
        self.0.grant()
    }

    fn counted_from(&self) -> Instant {
        self.0.counted_from()
    }

    fn ttl(&self) -> Ttl {
        self.0.ttl()
    }

    fn is_provisional(&self) -> bool {
        self.0.is_provisional()
    }

    async fn renew(&mut self) -> Result<()> {
        self.0.renew().await
    }

    async fn release(&mut self) -> Result<()> {
        self.0.release().await
    }

    async fn ended(&mut self) {
        self.0.ended().await;
    }
}
