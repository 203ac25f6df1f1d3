//! How to write a backend: a whole one, step by step, that passes the public conformance suite.
//!
//! `cargo run --release --example write_a_backend --features conformance`
//!
//! The store is a toy: a table with one atomic operation, as many key-value services have it, that lives in this
//! process. It cannot wake a waiter, so waiters ask again and again. Everything here uses the public API
//! only; the contract is in [`cerrojo::spi`], and these are the steps:
//!
//! 1. the store: what is kept for each lock, and one atomic step for each question;
//! 2. [`Backend`]: acquire, with waiting, and giving back what became unknown;
//! 3. [`Lease`]: what one grant knows of itself, renew and release;
//! 4. [`Inspect`]: what every store can tell and do to any lock;
//! 5. the conformance suite.
//!
//! What a backend does *not* do: renew by itself, compute validity, decide that a lease is lost, try again. The
//! core does all that, once for all backends.
#![allow(clippy::print_stderr, reason = "an example tells what it leaves out")]

use std::{
    collections::BTreeMap,
    num::NonZeroU64,
    process::ExitCode,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use cerrojo::{
    Error, ErrorKind, FencedGrant, FencingToken, HolderInfo, Identity, Instant, LockName, OwnerId,
    Result, StoreId, Ttl,
    conformance::{self, Capabilities, Capability, Harness, Instance, Severed},
    spi::{
        Acquired, Backend, Break, Inspect, Lease, Poll, Refusal, Request, not_held,
        poll_until_granted,
    },
};

// Step 1: the store.
//
// A lock needs a name, an owner, an end, and for a fenced store a number that only grows. The number must outlive
// the lock: it is one for the whole store, so it goes on growing when a lock's row is gone.

/// The pretended service. A real one is on the other side of a connection.
#[derive(Debug)]
struct Service {
    /// Tokens of different stores cannot be compared, so a store has an id from its creation.
    id: StoreId,
    table: Mutex<Table>,
    down: AtomicBool,
}

#[derive(Debug, Default)]
struct Table {
    last_token: u64,
    rows: BTreeMap<LockName, Row>,
}

#[derive(Clone, Debug)]
struct Row {
    owner: OwnerId,
    token: NonZeroU64,
    granted_at: Instant,
    /// By the store's clock. Here that is the machine's; a client's clock never takes part.
    ends_at: Instant,
    broken: bool,
    identity: Identity,
}

impl Service {
    fn new() -> Self {
        Self { id: StoreId::random(), table: Mutex::default(), down: AtomicBool::new(false) }
    }

    /// One question: an atomic step on the table.
    ///
    /// A service that cannot be reached for certain did nothing, hence `Unavailable`. Had the question gone out
    /// and no answer come back in time, the error would be `Indeterminate`: never "not held", never "held".
    async fn ask<T>(&self, step: impl FnOnce(&mut Table, Instant) -> T) -> Result<T> {
        if self.down.load(Ordering::SeqCst) {
            return Err(Error::new(
                ErrorKind::Unavailable,
                "the toy service is down: try again later",
            ));
        }
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(step(&mut table, Instant::now()))
    }
}

impl Table {
    /// The row of a lease that has not ended.
    fn live(&mut self, name: &LockName, now: Instant) -> Option<&mut Row> {
        self.rows.get_mut(name).filter(|row| now < row.ends_at)
    }

    /// The live row if it is this owner's: renew and release start here, so neither touches another's lease.
    fn own(&mut self, name: &LockName, owner: OwnerId, now: Instant) -> Option<&mut Row> {
        self.live(name, now).filter(|row| row.owner == owner)
    }

    /// Idempotent for one owner: a retry after a lost answer finds the same token, and sets the TTL anew.
    fn acquire(&mut self, request: &Request, now: Instant) -> Result<NonZeroU64, Box<HolderInfo>> {
        let (name, owner) = (request.name(), request.owner());
        match self.live(name, now) {
            None => Ok(self.grant(request, now)),
            Some(row) if row.owner == owner && !row.broken => {
                row.ends_at = now + request.ttl().get();
                Ok(row.token)
            }
            Some(row) => Err(Box::new(row.info(name, now))),
        }
    }

    fn grant(&mut self, request: &Request, now: Instant) -> NonZeroU64 {
        let token = NonZeroU64::MIN.saturating_add(self.last_token);
        self.last_token = token.get();
        let row = Row {
            owner: request.owner(),
            token,
            granted_at: now,
            ends_at: now + request.ttl().get(),
            broken: false,
            identity: Identity::clone(request.identity()),
        };
        self.rows.insert(request.name().clone(), row);
        token
    }

    /// Never re-creates: what is gone stays gone, and what is broken is not renewed.
    /// Only what is still there and this owner's gets a new end; says its token.
    fn prolong(
        &mut self,
        name: &LockName,
        owner: OwnerId,
        ttl: Ttl,
        now: Instant,
    ) -> Option<NonZeroU64> {
        let own = self.own(name, owner, now).filter(|row| !row.broken)?;
        own.ends_at = now + ttl.get();
        Some(own.token)
    }

    fn release(&mut self, name: &LockName, owner: OwnerId, now: Instant) -> Option<()> {
        self.own(name, owner, now)?;
        self.rows.remove(name).map(drop)
    }
}

impl Row {
    fn info(&self, name: &LockName, now: Instant) -> HolderInfo {
        // Shows the first digits of the owner id: whoever has all of it could release.
        let mut info = HolderInfo::new(name.clone(), &self.owner);
        info.token = Some(self.token.get());
        info.identity = self.identity.clone();
        info.held_for = Some(now.since(self.granted_at));
        info.ends_in = Some(self.ends_at.since(now));
        info.broken = self.broken;
        info
    }
}

// Step 2: the backend, one client of the service.
//
// Acquire is one attempt; `poll_until_granted` turns it into waiting, with jitter, until granted, cancelled or over.
// A store that can wake its waiters does better: see the memory and the local backend.

/// A connection to the service.
#[derive(Clone, Debug)]
struct Toy {
    service: Arc<Service>,
}

impl Toy {
    async fn attempt(&self, request: &Request) -> Result<Acquired<ToyLease>> {
        // Read before the question goes out: certainly not later than the store's own start of the TTL.
        let counted_from = Instant::now();
        let answer = self.service.ask(|table, now| table.acquire(request, now)).await?;
        Ok(match answer {
            Ok(token) => Acquired::Granted(self.lease(request, token, counted_from)),
            Err(holder) => Acquired::Refused(Refusal::by(Some(*holder))),
        })
    }

    fn lease(&self, request: &Request, token: NonZeroU64, counted_from: Instant) -> ToyLease {
        ToyLease {
            service: Arc::clone(&self.service),
            name: request.name().clone(),
            owner: request.owner(),
            token,
            ttl: request.ttl(),
            counted_from,
        }
    }
}

impl Backend for Toy {
    type Lease = ToyLease;

    fn kind(&self) -> &'static str {
        "toy"
    }

    async fn acquire(&self, request: &Request) -> Result<Acquired<ToyLease>> {
        poll_until_granted(request, Poll::default(), || self.attempt(request)).await
    }

    /// After an error the owner may hold the lock all the same. Had the store a queue, it would leave that too.
    async fn give_back(&self, name: &LockName, owner: OwnerId) -> Result<()> {
        held(name, self.service.ask(|table, now| table.release(name, owner, now)).await?)
    }

    /// A renewal by someone who has only the owner id: like every renewal it never re-creates.
    async fn resume(&self, name: &LockName, owner: OwnerId, ttl: Ttl) -> Result<ToyLease> {
        let (service, name, counted_from) =
            (Arc::clone(&self.service), name.clone(), Instant::now());
        let prolonged = service.ask(|table, now| table.prolong(&name, owner, ttl, now));
        let token = held(&name, prolonged.await?)?;
        Ok(ToyLease { service, name, owner, token, ttl, counted_from })
    }
}

// Step 3: the lease.
//
// The token type says what the locks are for: `FencingToken` for correctness, `NoToken` for efficiency. A backend
// cannot make a `FencingToken`; it says the number by which the store ordered the grant, and the core mints it.

#[derive(Debug)]
struct ToyLease {
    service: Arc<Service>,
    name: LockName,
    owner: OwnerId,
    token: NonZeroU64,
    ttl: Ttl,
    counted_from: Instant,
}

fn held<T>(name: &LockName, answer: Option<T>) -> Result<T> {
    answer.ok_or_else(|| not_held(name))
}

impl Lease for ToyLease {
    type Token = FencingToken;

    fn owner(&self) -> OwnerId {
        self.owner
    }

    fn grant(&self) -> FencedGrant {
        FencedGrant { number: self.token, store: self.service.id }
    }

    fn counted_from(&self) -> Instant {
        self.counted_from
    }

    fn ttl(&self) -> Ttl {
        self.ttl
    }

    /// Counts anew only once the store has said yes, and from before it was asked.
    async fn renew(&mut self) -> Result<()> {
        let asked_at = Instant::now();
        let (name, owner, ttl) = (&self.name, self.owner, self.ttl);
        let prolonged = self.service.ask(|table, now| table.prolong(name, owner, ttl, now));
        held(name, prolonged.await?)?;
        self.counted_from = asked_at;
        Ok(())
    }

    async fn release(&mut self) -> Result<()> {
        let (name, owner) = (&self.name, self.owner);
        held(name, self.service.ask(|table, now| table.release(name, owner, now)).await?)
    }
}

// Step 4: inspection, so that every command works on every store.

impl Inspect for Toy {
    async fn list(&self, after: Option<&LockName>, limit: usize) -> Result<Vec<HolderInfo>> {
        self.service
            .ask(|table, now| {
                let live = table.rows.iter().filter(|(_, row)| now < row.ends_at);
                let further = live.filter(|(name, _)| after.is_none_or(|after| *name > after));
                further.take(limit).map(|(name, row)| row.info(name, now)).collect()
            })
            .await
    }

    async fn holder(&self, name: &LockName) -> Result<Option<HolderInfo>> {
        self.service.ask(|table, now| table.live(name, now).map(|row| row.info(name, now))).await
    }

    /// A broken row takes no more renewals; it is free at its end, or at once.
    async fn break_lock(&self, name: &LockName, when: Break) -> Result<Option<HolderInfo>> {
        self.service
            .ask(|table, now| {
                let row = table.live(name, now)?;
                row.broken = true;
                let info = row.info(name, now);
                if when == Break::Now {
                    table.rows.remove(name);
                }
                Some(info)
            })
            .await
    }

    /// Rows whose lease has ended. The counter is not one of them: tokens never repeat.
    async fn prune(&self) -> Result<u64> {
        self.service
            .ask(|table, now| {
                let before = table.rows.len();
                table.rows.retain(|_, row| now < row.ends_at);
                u64::try_from(before - table.rows.len()).unwrap_or(u64::MAX)
            })
            .await
    }
}

// Step 5: the suite. It needs a way to make a fresh store, to connect to it again, and to cut it off.

#[derive(Clone)]
struct ToyHarness;

/// A service that one case has for itself.
struct ToyInstance(Arc<Service>);

impl Harness for ToyHarness {
    type Backend = Toy;
    type Instance = ToyInstance;

    fn name(&self) -> String {
        "toy".to_owned()
    }

    /// What is not claimed here is left out and listed: it wakes nobody in order, and lives in one process.
    fn capabilities(&self) -> Capabilities {
        Capabilities::none()
            .with(Capability::Fenced)
            .with(Capability::Sever)
            .with(Capability::NamesHolder)
    }

    async fn fresh(&self) -> Result<ToyInstance> {
        Ok(ToyInstance(Arc::new(Service::new())))
    }

    async fn open(&self, _url: &str) -> Result<Toy> {
        Err(Error::new(ErrorKind::Invalid, "the toy's store lives inside one process"))
    }
}

impl Instance for ToyInstance {
    type Backend = Toy;

    async fn connect(&self) -> Result<Toy> {
        Ok(Toy { service: Arc::clone(&self.0) })
    }

    fn sever(&self) -> Option<Severed> {
        self.0.down.store(true, Ordering::SeqCst);
        Some(Severed::new(Healing(Arc::clone(&self.0))))
    }
}

struct Healing(Arc<Service>);

impl Drop for Healing {
    fn drop(&mut self) {
        self.0.down.store(false, Ordering::SeqCst);
    }
}

fn main() -> ExitCode {
    // The suite starts this program again, as other processes of its cases.
    if let Some(code) = conformance::child_main(&ToyHarness) {
        return code;
    }
    eprint!("{}", conformance::left_out(&ToyHarness));
    let arguments = libtest_mimic::Arguments::from_args();
    libtest_mimic::run(&arguments, conformance::trials(&ToyHarness)).exit_code()
}
