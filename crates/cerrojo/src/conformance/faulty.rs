//! A backend around another one that fails on command and remembers what it was asked.

use std::{
    collections::HashMap,
    future::Future,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio_util::sync::CancellationToken;

use crate::{
    Error, ErrorKind, HolderInfo, Instant, LockName, OwnerId, Result, Token, Ttl, clock,
    spi::{Acquired, Backend, Break, Inspect, Lease, Request},
};

/// A call that can fail.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Call {
    /// [`Backend::acquire`].
    Acquire,
    /// [`Backend::give_back`].
    GiveBack,
    /// [`Backend::resume`].
    Resume,
    /// [`Lease::renew`].
    Renew,
    /// [`Lease::release`].
    Release,
}

/// How a call fails.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The store is not asked: [`ErrorKind::Unavailable`].
    Fails,
    /// The store is not asked, and no answer ever comes.
    Hangs,
    /// The store acts, but its answer is lost: [`ErrorKind::Indeterminate`].
    LosesReply,
    /// The store acts, but no answer ever comes.
    HangsAfter,
    /// The store is asked later.
    Delays(Duration),
    /// The store acts at once, and its answer comes later.
    DelaysReply(Duration),
}

/// A grant that a [`Faulty`] backend saw the store make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// To whom.
    pub owner: OwnerId,
    /// The fencing token's number, from a fenced store.
    pub token: Option<u64>,
    /// When the answer was there.
    pub at: Instant,
}

/// Says what fails, and what was asked. Clones are one.
#[derive(Clone, Debug, Default)]
pub struct Faults(Arc<Script>);

#[derive(Debug, Default)]
struct Script {
    notes: Mutex<Notes>,
    sessions_end: CancellationToken,
}

#[derive(Debug, Default)]
struct Notes {
    planned: HashMap<Call, (Fault, u32)>,
    calls: Vec<(Call, OwnerId)>,
    grants: Vec<Grant>,
    acquiring: usize,
    acquiring_max: usize,
}

impl Faults {
    /// The next `times` calls of this kind fail like this.
    pub fn plan(&self, call: Call, fault: Fault, times: u32) {
        self.notes().planned.insert(call, (fault, times));
    }

    /// Calls of this kind fail like this until [healed](Faults::heal).
    pub fn keep(&self, call: Call, fault: Fault) {
        self.plan(call, fault, u32::MAX);
    }

    /// Nothing fails any more. Calls that hang go on hanging.
    pub fn heal(&self) {
        self.notes().planned.clear();
    }

    /// All leases report that their session has ended.
    pub fn end_sessions(&self) {
        self.0.sessions_end.cancel();
    }

    /// How many calls of this kind there were.
    #[must_use]
    pub fn count(&self, call: Call) -> usize {
        self.notes().calls.iter().filter(|(made, _)| *made == call).count()
    }

    /// Every call with its owner, in order.
    #[must_use]
    pub fn calls(&self) -> Vec<(Call, OwnerId)> {
        self.notes().calls.clone()
    }

    /// What the store granted, in the order in which its answers came, lost ones too.
    #[must_use]
    pub fn grants(&self) -> Vec<Grant> {
        self.notes().grants.clone()
    }

    /// The token of the last grant.
    #[must_use]
    pub fn last_token(&self) -> Option<u64> {
        self.notes().grants.last().and_then(|grant| grant.token)
    }

    /// How many acquires are under way.
    #[must_use]
    pub fn acquiring(&self) -> usize {
        self.notes().acquiring
    }

    /// The most acquires that were under way at one time.
    #[must_use]
    pub fn acquiring_max(&self) -> usize {
        self.notes().acquiring_max
    }

    fn notes(&self) -> MutexGuard<'_, Notes> {
        self.0.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes the call and says how it fails.
    fn called(&self, call: Call, owner: OwnerId) -> Option<Fault> {
        let mut notes = self.notes();
        notes.calls.push((call, owner));
        let (fault, left) = notes.planned.get_mut(&call)?;
        *left = left.checked_sub(1)?;
        Some(*fault)
    }

    /// One call, as it was planned to fail. An answer that is lost is handed to `bury`.
    async fn pass<T>(
        &self,
        fault: Option<Fault>,
        call: impl Future<Output = Result<T>>,
        bury: impl FnOnce(T),
    ) -> Result<T> {
        match fault {
            None => call.await,
            Some(Fault::Fails) => Err(Error::new(ErrorKind::Unavailable, "told to fail")),
            Some(Fault::Hangs) => std::future::pending().await,
            Some(Fault::Delays(length)) => {
                clock::sleep(length).await;
                call.await
            }
            Some(Fault::DelaysReply(length)) => {
                let answer = call.await;
                clock::sleep(length).await;
                answer
            }
            Some(Fault::LosesReply) => {
                bury(call.await?);
                Err(Error::new(ErrorKind::Indeterminate, "told to lose the reply"))
            }
            Some(Fault::HangsAfter) => {
                bury(call.await?);
                std::future::pending().await
            }
        }
    }
}

/// An acquire under way.
struct Acquiring<'a>(&'a Faults);

impl<'a> Acquiring<'a> {
    fn new(faults: &'a Faults) -> Self {
        let mut notes = faults.notes();
        notes.acquiring += 1;
        notes.acquiring_max = notes.acquiring_max.max(notes.acquiring);
        Self(faults)
    }
}

impl Drop for Acquiring<'_> {
    fn drop(&mut self) {
        self.0.notes().acquiring -= 1;
    }
}

/// A backend that fails as its [`Faults`] say, and is otherwise the one inside.
#[derive(Debug)]
pub struct Faulty<B: Backend> {
    inner: B,
    faults: Faults,
    /// Leases whose grant was not told: dropping them could end them.
    buried: Mutex<Vec<B::Lease>>,
}

/// A lease of a [`Faulty`] backend.
#[derive(Debug)]
pub struct FaultyLease<L> {
    inner: L,
    owner: OwnerId,
    faults: Faults,
}

impl<B: Backend> Faulty<B> {
    /// The backend that fails, and what makes it fail.
    pub fn new(inner: B) -> (Self, Faults) {
        let faults = Faults::default();
        (Self { inner, faults: faults.clone(), buried: Mutex::default() }, faults)
    }

    async fn ask(&self, request: &Request) -> Result<Acquired<B::Lease>> {
        let answer = self.inner.acquire(request).await?;
        if let Acquired::Granted(lease) = &answer {
            let token = <B::Lease as Lease>::Token::number(&lease.grant());
            let grant = Grant { owner: request.owner(), token, at: Instant::now() };
            self.faults.notes().grants.push(grant);
        }
        Ok(answer)
    }

    fn bury(&self, answer: Acquired<B::Lease>) {
        if let Acquired::Granted(lease) = answer {
            self.buried.lock().unwrap_or_else(PoisonError::into_inner).push(lease);
        }
    }
}

impl<B: Backend> Backend for Faulty<B> {
    type Lease = FaultyLease<B::Lease>;

    fn kind(&self) -> &'static str {
        self.inner.kind()
    }

    async fn acquire(&self, request: &Request) -> Result<Acquired<Self::Lease>> {
        let _acquiring = Acquiring::new(&self.faults);
        let fault = self.faults.called(Call::Acquire, request.owner());
        let answer = self.faults.pass(fault, self.ask(request), |answer| self.bury(answer));
        Ok(match answer.await? {
            Acquired::Refused(refusal) => Acquired::Refused(refusal),
            Acquired::Granted(inner) => {
                let (owner, faults) = (request.owner(), self.faults.clone());
                Acquired::Granted(FaultyLease { inner, owner, faults })
            }
        })
    }

    async fn give_back(&self, name: &LockName, owner: OwnerId) -> Result<()> {
        let fault = self.faults.called(Call::GiveBack, owner);
        self.faults.pass(fault, self.inner.give_back(name, owner), drop).await
    }

    async fn resume(&self, name: &LockName, owner: OwnerId, ttl: Ttl) -> Result<Self::Lease> {
        let fault = self.faults.called(Call::Resume, owner);
        let inner = self.faults.pass(fault, self.inner.resume(name, owner, ttl), drop).await?;
        Ok(FaultyLease { inner, owner, faults: self.faults.clone() })
    }
}

impl<B: Backend> Inspect for Faulty<B> {
    async fn list(&self, after: Option<&LockName>, limit: usize) -> Result<Vec<HolderInfo>> {
        self.inner.list(after, limit).await
    }

    async fn holder(&self, name: &LockName) -> Result<Option<HolderInfo>> {
        self.inner.holder(name).await
    }

    async fn break_lock(&self, name: &LockName, when: Break) -> Result<Option<HolderInfo>> {
        self.inner.break_lock(name, when).await
    }

    async fn prune(&self) -> Result<u64> {
        self.inner.prune().await
    }
}

impl<L: Lease> Lease for FaultyLease<L> {
    type Token = L::Token;

    fn owner(&self) -> OwnerId {
        self.inner.owner()
    }

    fn grant(&self) -> <L::Token as Token>::Grant {
        self.inner.grant()
    }

    fn counted_from(&self) -> Instant {
        self.inner.counted_from()
    }

    fn ttl(&self) -> Ttl {
        self.inner.ttl()
    }

    fn is_provisional(&self) -> bool {
        self.inner.is_provisional()
    }

    async fn renew(&mut self) -> Result<()> {
        let fault = self.faults.called(Call::Renew, self.owner);
        self.faults.pass(fault, self.inner.renew(), drop).await
    }

    async fn release(&mut self) -> Result<()> {
        let fault = self.faults.called(Call::Release, self.owner);
        self.faults.pass(fault, self.inner.release(), drop).await
    }

    async fn ended(&mut self) {
        tokio::select! {
            () = self.inner.ended() => {}
            () = self.faults.0.sessions_end.cancelled() => {}
        }
    }
}
