//! The reference model: a fenced store inside one process, for tests and as the plainest reading of the contract.
//!
//! Waiters are served in the order in which they came. Nothing survives the process.

use std::{
    collections::{BTreeMap, VecDeque},
    num::NonZeroU64,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::{Notify, watch};

use crate::{
    Error, ErrorKind, FencedGrant, FencingToken, HolderInfo, Identity, LockName, Result, StoreId,
    Ttl,
    clock::{self, Instant},
    owner::OwnerId,
    spi::{Acquired, Backend, Break, CALL_LIMIT, Inspect, Lease, Refusal, Request, not_held},
};

/// A store inside this process. Clones share it.
#[derive(Clone, Debug)]
pub struct Memory {
    store: Arc<Store>,
}

#[derive(Debug)]
struct Store {
    id: StoreId,
    tables: Mutex<Tables>,
    /// Whether calls are answered; see [`Memory::interrupt`].
    up: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct Tables {
    last_token: u64,
    held: BTreeMap<LockName, Record>,
    waiting: BTreeMap<LockName, VecDeque<Place>>,
}

#[derive(Clone, Debug)]
struct Record {
    owner: OwnerId,
    grant: FencedGrant,
    granted_at: Instant,
    expires_at: Instant,
    broken: bool,
    identity: Arc<Identity>,
}

#[derive(Clone, Debug)]
struct Place {
    owner: OwnerId,
    called: Arc<Notify>,
}

/// A lease of a [`Memory`] store.
#[derive(Debug)]
pub struct MemoryLease {
    store: Arc<Store>,
    name: LockName,
    owner: OwnerId,
    grant: FencedGrant,
    ttl: Ttl,
    counted_from: Instant,
}

/// While it lives, the store answers nobody: a network that is cut.
#[must_use = "the store answers again when this is dropped"]
#[derive(Debug)]
pub struct Interruption(Arc<Store>);

impl Drop for Interruption {
    fn drop(&mut self) {
        self.0.up.send_replace(true);
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self::new()
    }
}

impl Memory {
    /// An empty store.
    #[must_use]
    pub fn new() -> Self {
        let (tables, up) = (Mutex::default(), watch::Sender::new(true));
        Self { store: Arc::new(Store { id: StoreId::random(), tables, up }) }
    }

    /// Stops answering until the answer is dropped, to try out what a user's code does then.
    ///
    /// A call that was made meanwhile is answered afterwards, or given up at its time limit.
    pub fn interrupt(&self) -> Interruption {
        self.store.up.send_replace(false);
        Interruption(Arc::clone(&self.store))
    }
}

impl Store {
    /// One call: an atomic step on the tables, unless the store does not answer in time.
    async fn call<T>(&self, step: impl FnOnce(&mut Tables) -> T) -> Result<T> {
        if !*self.up.borrow() {
            // Boxed: calls that need not wait do not carry its memory.
            Box::pin(self.wait_until_up()).await?;
        }
        Ok(step(&mut self.tables()))
    }

    async fn wait_until_up(&self) -> Result<()> {
        let mut up = self.up.subscribe();
        match clock::within(CALL_LIMIT, up.wait_for(|up| *up)).await {
            Ok(_) => Ok(()),
            Err(elapsed) => Err(Error::new(
                ErrorKind::Unavailable,
                format!("the memory store is interrupted and did not answer within {CALL_LIMIT:?}"),
            )
            .with_source(elapsed)),
        }
    }

    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tables {
    /// The record of a lease that has not ended.
    fn live(&mut self, name: &LockName, now: Instant) -> Option<&mut Record> {
        self.held.get_mut(name).filter(|record| now < record.expires_at)
    }

    /// The live record, if it is this owner's.
    fn own(&mut self, name: &LockName, owner: OwnerId, now: Instant) -> Option<&mut Record> {
        self.live(name, now).filter(|record| record.owner == owner)
    }

    /// Grants to the owner that has it already, or to the first in line if it is free.
    fn acquire(
        &mut self,
        store: StoreId,
        request: &Request,
        now: Instant,
    ) -> Result<FencedGrant, Box<HolderInfo>> {
        let expires_at = now + request.ttl().get();
        let owner = request.owner();
        if let Some(own) = self.own(request.name(), owner, now).filter(|own| !own.broken) {
            own.expires_at = expires_at;
            return Ok(own.grant);
        }
        if let Some(holder) = self.live(request.name(), now) {
            return Err(Box::new(holder.info(request.name(), now)));
        }
        if let Some(first) = self.first_in_line(request.name()).filter(|first| first.owner != owner)
        {
            first.called.notify_one();
            return Err(Box::new(HolderInfo::new(request.name().clone(), &first.owner)));
        }
        self.last_token += 1;
        let number = NonZeroU64::MIN.saturating_add(self.last_token - 1);
        let grant = FencedGrant { number, store };
        let identity = Arc::clone(request.identity());
        let record = Record { owner, grant, granted_at: now, expires_at, broken: false, identity };
        self.held.insert(request.name().clone(), record);
        self.leave(request.name(), owner);
        Ok(grant)
    }

    /// Sets the TTL of the owner's lease anew; none: it has none, or a broken one.
    fn prolong(&mut self, name: &LockName, owner: OwnerId, ttl: Ttl) -> Option<FencedGrant> {
        let now = Instant::now();
        let own = self.own(name, owner, now).filter(|own| !own.broken)?;
        own.expires_at = now + ttl.get();
        Some(own.grant)
    }

    fn release(&mut self, name: &LockName, owner: OwnerId, now: Instant) -> bool {
        let was_own = self.own(name, owner, now).is_some();
        if was_own {
            self.free(name);
        }
        was_own
    }

    /// Ends the lease and calls the next in line.
    fn free(&mut self, name: &LockName) {
        self.held.remove(name);
        self.call_first(name);
    }

    fn call_first(&self, name: &LockName) {
        if let Some(first) = self.first_in_line(name) {
            first.called.notify_one();
        }
    }

    fn first_in_line(&self, name: &LockName) -> Option<&Place> {
        self.waiting.get(name).and_then(VecDeque::front)
    }

    fn join(&mut self, name: &LockName, place: Place) {
        self.waiting.entry(name.clone()).or_default().push_back(place);
    }

    fn leave(&mut self, name: &LockName, owner: OwnerId) {
        let Some(line) = self.waiting.get_mut(name) else {
            return;
        };
        line.retain(|place| place.owner != owner);
        if line.is_empty() {
            self.waiting.remove(name);
        }
        if self.live(name, Instant::now()).is_none() {
            self.call_first(name);
        }
    }
}

impl Record {
    fn info(&self, name: &LockName, now: Instant) -> HolderInfo {
        HolderInfo {
            token: Some(self.grant.number.get()),
            identity: Identity::clone(&self.identity),
            held_for: Some(now.since(self.granted_at)),
            ends_in: Some(self.expires_at.since(now)),
            broken: self.broken,
            ..HolderInfo::new(name.clone(), &self.owner)
        }
    }
}

/// Standing in the store's line; leaves it when dropped.
struct InLine<'a> {
    store: &'a Store,
    request: &'a Request,
    called: Arc<Notify>,
}

impl<'a> InLine<'a> {
    fn join(store: &'a Store, request: &'a Request) -> Self {
        let called = Arc::new(Notify::new());
        let place = Place { owner: request.owner(), called: Arc::clone(&called) };
        store.tables().join(request.name(), place);
        Self { store, request, called }
    }

    /// Until called, the holder's end, or nobody waits any more. False: the last.
    async fn next_chance(&self, holder: &HolderInfo) -> bool {
        let ends_in = holder.ends_in.unwrap_or(Duration::from_secs(1));
        let chance = async {
            tokio::select! {
                () = self.called.notified() => {}
                () = clock::sleep(ends_in) => {}
            }
        };
        tokio::select! {
            chance = self.request.wait().bound(chance) => chance.is_some(),
            () = self.request.cancelled() => false,
        }
    }
}

impl Drop for InLine<'_> {
    fn drop(&mut self) {
        self.store.tables().leave(self.request.name(), self.request.owner());
    }
}

impl Memory {
    async fn attempt(&self, request: &Request) -> Result<Result<MemoryLease, Box<HolderInfo>>> {
        let counted_from = Instant::now();
        let id = self.store.id;
        let answer = self.store.call(|tables| tables.acquire(id, request, Instant::now())).await?;
        Ok(answer.map(|grant| MemoryLease {
            store: Arc::clone(&self.store),
            name: request.name().clone(),
            owner: request.owner(),
            grant,
            ttl: request.ttl(),
            counted_from,
        }))
    }

    async fn wait_in_line(&self, request: &Request) -> Result<Acquired<MemoryLease>> {
        let line = InLine::join(&self.store, request);
        let mut last = false;
        loop {
            match self.attempt(request).await? {
                Ok(lease) => return Ok(Acquired::Granted(lease)),
                Err(holder) if last => return Ok(Acquired::Refused(Refusal::by(Some(*holder)))),
                Err(holder) => last = !line.next_chance(&holder).await,
            }
        }
    }
}

impl Backend for Memory {
    type Lease = MemoryLease;

    fn kind(&self) -> &'static str {
        "memory"
    }

    async fn acquire(&self, request: &Request) -> Result<Acquired<MemoryLease>> {
        match self.attempt(request).await? {
            Ok(lease) => Ok(Acquired::Granted(lease)),
            Err(holder) if request.wait().is_over() || request.is_cancelled() => {
                Ok(Acquired::Refused(Refusal::by(Some(*holder))))
            }
            Err(_) => self.wait_in_line(request).await,
        }
    }

    async fn give_back(&self, name: &LockName, owner: OwnerId) -> Result<()> {
        let released = self.store.call(|tables| tables.release(name, owner, Instant::now()));
        if released.await? { Ok(()) } else { Err(not_held(name)) }
    }

    async fn resume(&self, name: &LockName, owner: OwnerId, ttl: Ttl) -> Result<MemoryLease> {
        let counted_from = Instant::now();
        let (store, name) = (Arc::clone(&self.store), name.clone());
        match store.call(|tables| tables.prolong(&name, owner, ttl)).await? {
            Some(grant) => Ok(MemoryLease { store, name, owner, grant, ttl, counted_from }),
            None => Err(not_held(&name)),
        }
    }
}

impl Inspect for Memory {
    async fn list(&self, after: Option<&LockName>, limit: usize) -> Result<Vec<HolderInfo>> {
        self.store
            .call(|tables| {
                let now = Instant::now();
                let live = tables.held.iter().filter(|(_, record)| now < record.expires_at);
                let infos = live.map(|(name, record)| record.info(name, now));
                infos
                    .filter(|info| after.is_none_or(|after| info.name > *after))
                    .take(limit)
                    .collect()
            })
            .await
    }

    async fn holder(&self, name: &LockName) -> Result<Option<HolderInfo>> {
        let now = Instant::now();
        self.store.call(|tables| tables.live(name, now).map(|record| record.info(name, now))).await
    }

    async fn break_lock(&self, name: &LockName, when: Break) -> Result<Option<HolderInfo>> {
        self.store
            .call(|tables| {
                let now = Instant::now();
                let record = tables.live(name, now)?;
                record.broken = true;
                let info = record.info(name, now);
                if when == Break::Now {
                    tables.free(name);
                }
                Some(info)
            })
            .await
    }

    async fn prune(&self) -> Result<u64> {
        self.store
            .call(|tables| {
                let (now, before) = (Instant::now(), tables.held.len());
                tables.held.retain(|_, record| now < record.expires_at);
                u64::try_from(before - tables.held.len()).unwrap_or(u64::MAX)
            })
            .await
    }
}

impl Lease for MemoryLease {
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
        let (name, owner, ttl) = (&self.name, self.owner, self.ttl);
        match self.store.call(|tables| tables.prolong(name, owner, ttl)).await? {
            Some(_) => self.counted_from = counted_from,
            None => return Err(not_held(&self.name)),
        }
        Ok(())
    }

    async fn release(&mut self) -> Result<()> {
        let (name, owner) = (&self.name, self.owner);
        let released = self.store.call(|tables| tables.release(name, owner, Instant::now()));
        if released.await? { Ok(()) } else { Err(not_held(&self.name)) }
    }
}
