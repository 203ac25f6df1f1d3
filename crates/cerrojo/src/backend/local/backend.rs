//! The embedded store as a backend.

use std::{path::PathBuf, sync::Arc, time::Duration};

use super::{
    config::{self, Builder},
    error::LocalError,
    folder::Folder,
    lease::LocalLease,
    machine::Machine,
    process::Proof,
    store::{Ask, Held, Tables, write_identity, write_proof},
    wake::{Sockets, Waiter, Waiters},
    worker::Worker,
};
use crate::{
    Error, FencedGrant, HolderInfo, LockName, Result, StoreId, Ttl,
    clock::{self, Instant},
    owner::OwnerId,
    spi::{Acquired, Backend, BoundTo, Break, Inspect, Refusal, Request, not_held},
};

/// The embedded store in one folder. Clones share one thread and one database connection.
#[derive(Clone, Debug)]
pub struct Local {
    inner: Arc<Inner>,
}

#[derive(Debug)]
pub(super) struct Inner {
    folder: Folder,
    machine: Machine,
    store_id: StoreId,
    worker: Worker,
    waiters: Arc<Waiters>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.waiters.end();
    }
}

impl Inner {
    pub(super) async fn call<T: Send + 'static>(
        &self,
        step: impl FnOnce(&mut Tables) -> Result<T, LocalError> + Send + 'static,
    ) -> Result<T> {
        self.worker.call(step).await.map_err(|error| self.error(error))
    }

    fn error(&self, error: LocalError) -> Error {
        error.at(self.folder.path())
    }

    fn ask(&self, request: &Request) -> Ask {
        Ask {
            name: request.name().clone(),
            owner: request.owner(),
            ttl_ns: nanos(request.ttl()),
            identity: write_identity(request.identity()),
            proof: self.proof(request.bound_to()),
            line: None,
        }
    }

    fn proof(&self, bound_to: &BoundTo) -> Option<String> {
        match bound_to {
            // Known already: /proc is not read for each request.
            BoundTo::ThisProcess => self.waiters.standing().proof,
            BoundTo::All { .. } | BoundTo::Nothing => {
                let proof = Proof::of(bound_to, &self.machine);
                proof.as_ref().map(write_proof)
            }
        }
    }
}

impl Local {
    /// Opens the store in `folder`, creating it where it is not there yet.
    ///
    /// # Errors
    ///
    /// With nothing changed: [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) when the folder is on a network or shared filesystem, can be used by
    /// others, is used in another time namespace, or was made by a newer version; [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) when the
    /// database is damaged; [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) when it cannot be made or written, or the disk is full.
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any time; opening ends in the background.
    pub async fn connect(folder: impl Into<PathBuf>) -> Result<Self> {
        Self::builder(folder).connect().await
    }

    /// For settings beyond the folder.
    pub fn builder(folder: impl Into<PathBuf>) -> Builder {
        Builder::new(folder.into())
    }

    pub(crate) async fn connect_url(path: &str) -> Result<Self> {
        Self::connect(config::folder_of(path)?).await
    }

    pub(super) async fn open(path: PathBuf, machine: Machine) -> Result<Self> {
        let opened = Self::try_open(path.clone(), machine).await;
        opened.map_err(|error| error.at(&path))
    }

    async fn try_open(path: PathBuf, machine: Machine) -> Result<Self, LocalError> {
        let folder = Folder::prepare(path)?;
        let sockets = Arc::new(Sockets::open(&folder)?);
        let waiters = Arc::new(Waiters::new(Arc::clone(&sockets), &machine));
        let (worker, store_id) = Worker::start(folder.clone(), machine.clone(), sockets).await?;
        Ok(Self { inner: Arc::new(Inner { folder, machine, store_id, worker, waiters }) })
    }

    /// The random id that the store got when it was made.
    #[must_use]
    pub fn store_id(&self) -> StoreId {
        self.inner.store_id
    }

    async fn attempt(&self, ask: &Ask, ttl: Ttl) -> Result<Result<LocalLease, Held>> {
        let counted_from = Instant::now();
        let (name, owner, ask) = (ask.name.clone(), ask.owner, ask.clone());
        let answer = self.inner.call(move |tables| tables.acquire(&ask)).await?;
        let store = Arc::clone(&self.inner);
        Ok(answer.map(|grant: FencedGrant| LocalLease {
            store,
            name,
            owner,
            grant,
            ttl,
            counted_from,
        }))
    }

    /// Stands in the store's line until granted, or until nobody waits any more.
    async fn wait_in_line(&self, request: &Request, mut ask: Ask) -> Result<Acquired<LocalLease>> {
        let place = InLine::enter(&self.inner, request)?;
        ask.line = Some(self.inner.waiters.standing());
        loop {
            match self.attempt(&ask, request.ttl()).await? {
                Ok(lease) => return Ok(Acquired::Granted(lease)),
                Err(held) if ask.line.is_none() => {
                    return Ok(Acquired::Refused(Refusal::by(Some(held.holder))));
                }
                Err(held) => {
                    if !place.next_chance(request, &held).await {
                        ask.line = None;
                    }
                }
            }
        }
    }
}

/// Standing in line; leaves it in the store too when dropped.
struct InLine {
    store: Arc<Inner>,
    waiter: Waiter,
    name: LockName,
    owner: OwnerId,
}

impl InLine {
    fn enter(store: &Arc<Inner>, request: &Request) -> Result<Self> {
        let waiter = store
            .waiters
            .enter(request.owner(), &store.worker)
            .map_err(|error| store.error(error))?;
        let (name, owner) = (request.name().clone(), request.owner());
        Ok(Self { store: Arc::clone(store), waiter, name, owner })
    }

    /// Until called, until the holder's TTL ends, or until nobody waits any more. False: one last attempt.
    async fn next_chance(&self, request: &Request, held: &Held) -> bool {
        if let Some(proof) = &held.proof {
            self.store.waiters.watch(proof, &self.store.machine);
        }
        let ends_in = held.holder.ends_in.unwrap_or(Duration::MAX);
        let chance = async {
            tokio::select! {
                () = self.waiter.called() => {}
                () = clock::sleep(ends_in) => {}
            }
        };
        tokio::select! {
            chance = request.wait().bound(chance) => chance.is_some(),
            () = request.cancelled() => false,
        }
    }
}

impl Drop for InLine {
    fn drop(&mut self) {
        let (name, owner) = (self.name.clone(), self.owner);
        self.store.worker.send(move |tables| {
            tables.leave(&name, owner)?;
            Ok(|| ())
        });
    }
}

impl Backend for Local {
    type Lease = LocalLease;

    fn kind(&self) -> &'static str {
        "local"
    }

    async fn acquire(&self, request: &Request) -> Result<Acquired<LocalLease>> {
        let ask = self.inner.ask(request);
        match self.attempt(&ask, request.ttl()).await? {
            Ok(lease) => Ok(Acquired::Granted(lease)),
            Err(held) if request.wait().is_over() || request.is_cancelled() => {
                Ok(Acquired::Refused(Refusal::by(Some(held.holder))))
            }
            Err(_) => self.wait_in_line(request, ask).await,
        }
    }

    async fn give_back(&self, name: &LockName, owner: OwnerId) -> Result<()> {
        let asked = name.clone();
        let released = self.inner.call(move |tables| {
            let released = tables.release(&asked, owner)?;
            tables.leave(&asked, owner)?;
            Ok(released)
        });
        if released.await? { Ok(()) } else { Err(not_held(name)) }
    }

    async fn resume(&self, name: &LockName, owner: OwnerId, ttl: Ttl) -> Result<LocalLease> {
        let counted_from = Instant::now();
        let (store, name, asked) = (Arc::clone(&self.inner), name.clone(), name.clone());
        let held = self.inner.call(move |tables| tables.resume(&asked, owner, nanos(ttl)));
        match held.await? {
            Some(grant) => Ok(LocalLease { store, name, owner, grant, ttl, counted_from }),
            None => Err(not_held(&name)),
        }
    }
}

impl Inspect for Local {
    async fn list(&self, after: Option<&LockName>, limit: usize) -> Result<Vec<HolderInfo>> {
        // Before every name stands the empty text, which is none.
        let after = after.map(|name| name.as_str().to_owned()).unwrap_or_default();
        self.inner.call(move |tables| tables.list(&after, limit)).await
    }

    async fn holder(&self, name: &LockName) -> Result<Option<HolderInfo>> {
        let name = name.clone();
        self.inner.call(move |tables| tables.holder(&name)).await
    }

    async fn break_lock(&self, name: &LockName, when: Break) -> Result<Option<HolderInfo>> {
        let name = name.clone();
        self.inner.call(move |tables| tables.break_lock(&name, when)).await
    }

    async fn prune(&self) -> Result<u64> {
        self.inner.call(Tables::prune).await
    }
}

pub(super) fn nanos(ttl: Ttl) -> u64 {
    u64::try_from(ttl.get().as_nanos()).unwrap_or(u64::MAX)
}
