//! What a backend writes: three small traits. For authors of backends; users need none of it.
//!
//! A backend answers questions of a store. It does not renew of its own accord, compute validity, decide
//! loss or retry: the core does, once for all backends. What a backend promises:
//!
//! * **One atomic, owner-checked step** in the store for each of acquire, renew and release.
//! * **Acquire is idempotent for one owner**: asked again, it finds the same grant with the same token, and
//!   sets its TTL anew in that same step.
//! * **Renew never re-creates**: what is gone or someone else's is answered with [`ErrorKind::Lost`].
//! * **A failed call is unknown**: [`ErrorKind::Indeterminate`] unless it is certain that the store did
//!   nothing ([`ErrorKind::Unavailable`]). Every call ends within a time limit of the backend's own.
//! * **Futures may be dropped at any await.** A call that was dropped may still take effect, in order: never
//!   after a later call of the same lease.
//! * **Honest `counted_from`**: see [`Lease::counted_from`].
//!
//! `examples/write_a_backend.rs` is a whole backend that passes the public
//! [conformance suite](crate::conformance).

use std::{fmt::Debug, future::Future, sync::Arc};

use tokio_util::sync::CancellationToken;

pub use crate::waiter::{Poll, poll_until_granted};
use crate::{
    Error, ErrorKind, LockName, Result, Token, Ttl,
    clock::{Deadline, Instant},
    holder::{HolderInfo, Identity},
    owner::OwnerId,
};

/// The longest that a call may take before its outcome counts as unknown, unless a backend sets less.
pub const CALL_LIMIT: std::time::Duration = std::time::Duration::from_secs(5);

/// How long a request waits for a lock that someone else holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Not at all: one attempt.
    No,
    /// Until the deadline.
    Until(Deadline),
    /// Until granted or cancelled.
    Forever,
}

impl Wait {
    /// Whether waiting is over.
    #[must_use]
    pub fn is_over(&self) -> bool {
        match self {
            Self::No => true,
            Self::Until(deadline) => deadline.has_passed(),
            Self::Forever => false,
        }
    }

    /// What `work` answers, or `None` when waiting is over first.
    ///
    /// # Cancel safety
    ///
    /// As cancel safe as `work`.
    pub async fn bound<F: Future>(&self, work: F) -> Option<F::Output> {
        match self {
            Self::No => None,
            Self::Until(deadline) => crate::clock::until(deadline.instant(), work).await.ok(),
            Self::Forever => Some(work.await),
        }
    }
}

impl From<Deadline> for Wait {
    fn from(deadline: Deadline) -> Self {
        Self::Until(deadline)
    }
}

/// The deadline that far from now.
impl From<std::time::Duration> for Wait {
    fn from(wait: std::time::Duration) -> Self {
        Self::Until(Deadline::after(wait))
    }
}

/// What must have ended before a store may pass a lease on before its TTL has.
///
/// Only a store that can prove an end (the local one) makes use of it; for all others the TTL decides.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum BoundTo {
    /// The process that acquires.
    #[default]
    ThisProcess,
    /// All of these processes and process groups, by their ids in this process's namespace.
    All {
        /// Process ids.
        processes: Vec<u32>,
        /// Process group ids.
        groups: Vec<u32>,
    },
    /// Nothing: only release and the TTL end it.
    Nothing,
}

/// One acquisition, as a backend sees it.
#[derive(Clone, Debug)]
pub struct Request {
    name: LockName,
    owner: OwnerId,
    ttl: Ttl,
    wait: Wait,
    identity: Arc<Identity>,
    bound_to: BoundTo,
    cancel: CancellationToken,
}

/// Withdraws a [`Request`].
#[derive(Clone, Debug)]
pub struct CancelHandle(CancellationToken);

impl Request {
    /// One attempt at `name`, by an owner that is new.
    #[must_use]
    pub fn new(name: LockName, ttl: Ttl) -> Self {
        Self {
            name,
            owner: OwnerId::random(),
            ttl,
            wait: Wait::No,
            identity: Arc::default(),
            bound_to: BoundTo::default(),
            cancel: CancellationToken::new(),
        }
    }

    /// The same request with waiting.
    #[must_use]
    pub fn with_wait(mut self, wait: impl Into<Wait>) -> Self {
        self.wait = wait.into();
        self
    }

    /// The same request by this owner: to ask again after a lost reply, or to take up what it holds.
    #[must_use]
    pub fn with_owner(mut self, owner: OwnerId) -> Self {
        self.owner = owner;
        self
    }

    /// The same request with what is shown of its holder.
    #[must_use]
    pub fn with_identity(mut self, identity: impl Into<Arc<Identity>>) -> Self {
        self.identity = identity.into();
        self
    }

    /// The same request with what its lease is bound to.
    #[must_use]
    pub fn with_bound_to(mut self, bound_to: BoundTo) -> Self {
        self.bound_to = bound_to;
        self
    }

    /// The same request by a new owner: an owner that was released is never acquired with again.
    #[must_use]
    pub(crate) fn renewed(&self) -> Self {
        Self { owner: OwnerId::random(), ..self.clone() }
    }

    /// The same request from the start: by a new owner, and not withdrawn.
    #[must_use]
    pub(crate) fn afresh(&self) -> Self {
        Self { cancel: CancellationToken::new(), ..self.renewed() }
    }

    /// What to lock.
    #[must_use]
    pub fn name(&self) -> &LockName {
        &self.name
    }

    /// For whom.
    #[must_use]
    pub fn owner(&self) -> OwnerId {
        self.owner
    }

    /// The TTL asked for; the store may grant another.
    #[must_use]
    pub fn ttl(&self) -> Ttl {
        self.ttl
    }

    /// How long to wait.
    #[must_use]
    pub fn wait(&self) -> &Wait {
        &self.wait
    }

    /// What to show to others.
    #[must_use]
    pub fn identity(&self) -> &Arc<Identity> {
        &self.identity
    }

    /// What must have ended before the lease may be passed on early.
    #[must_use]
    pub fn bound_to(&self) -> &BoundTo {
        &self.bound_to
    }

    /// Ready once nobody wants the lock any more: leave the queue, and answer
    /// [`Acquired::Refused`] or a lease, which the core then releases.
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any time.
    pub async fn cancelled(&self) {
        self.cancel.cancelled().await;
    }

    /// Whether nobody wants the lock any more.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.cancel.is_cancelled()
    }

    /// A handle that withdraws this request.
    #[must_use]
    pub fn cancel_handle(&self) -> CancelHandle {
        CancelHandle(self.cancel.clone())
    }
}

impl CancelHandle {
    /// Says that nobody wants the lock any more.
    pub fn cancel(&self) {
        self.0.cancel();
    }
}

/// What a store answers to a [`Request`].
#[derive(Debug)]
pub enum Acquired<L> {
    /// It is ours.
    Granted(L),
    /// Someone else had it until waiting was over (or the request was cancelled).
    Refused(Refusal),
}

/// Why a lock was not granted, as far as the store can tell.
#[derive(Debug, Default)]
pub struct Refusal {
    pub(crate) holder: Option<HolderInfo>,
    pub(crate) why: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Refusal {
    /// This holder has it.
    #[must_use]
    pub fn by(holder: Option<HolderInfo>) -> Self {
        Self { holder, why: None }
    }

    /// The same refusal with the reason that the user finds as the error's source.
    #[must_use]
    pub fn because(self, why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self { why: Some(why.into()), ..self }
    }

    /// Who has it, if the store can tell.
    #[must_use]
    pub fn holder(&self) -> Option<&HolderInfo> {
        self.holder.as_ref()
    }
}

/// A store that grants leases.
///
/// Constructors do no I/O; a `connect` may.
pub trait Backend: Inspect + Debug + Send + Sync + 'static {
    /// What it grants. Its token type says whether the locks are fenced or approximate.
    type Lease: Lease;

    /// The backend's short name, for labels and messages: `local`, `redis`.
    fn kind(&self) -> &'static str;

    /// Grants a lease, waiting as the request says.
    ///
    /// The request's end of waiting may be overrun by one call to the store, no more. A request that waits leaves
    /// the store's queue when it ends in any way.
    ///
    /// # Errors
    ///
    /// See the [module](self). After an error the owner may hold the lock: the core calls
    /// [`Backend::give_back`] or asks again.
    ///
    /// # Cancel safety
    ///
    /// May be dropped only when the runtime shuts down; [`Request::cancelled`] is how it is told to stop.
    fn acquire(
        &self,
        request: &Request,
    ) -> impl Future<Output = Result<Acquired<Self::Lease>>> + Send;

    /// Takes back whatever `owner` holds or waits for: after an acquire whose outcome is unknown, or for somebody who
    /// has only the owner id.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Lost`] when it held nothing. Any other: unknown; the TTL ends the lease then.
    fn give_back(&self, name: &LockName, owner: OwnerId)
    -> impl Future<Output = Result<()>> + Send;

    /// Takes up the lease that `owner` holds, acquired anywhere, and sets its TTL to `ttl` in the same step.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Lost`] when it does not hold the lock: like a renewal it never re-creates.
    fn resume(
        &self,
        name: &LockName,
        owner: OwnerId,
        ttl: Ttl,
    ) -> impl Future<Output = Result<Self::Lease>> + Send;
}

/// One grant. Owns whatever keeps it alive: a connection, a session, an owner id.
pub trait Lease: Debug + Send + 'static {
    /// [`FencingToken`](crate::FencingToken) or [`NoToken`](crate::NoToken).
    type Token: Token;

    /// For whom it was granted: the request's owner, or where a store made several attempts, the last one's.
    fn owner(&self) -> OwnerId;

    /// What the store said with the grant: for a fenced lock the number it was ordered by. The core mints the token.
    fn grant(&self) -> <Self::Token as Token>::Grant;

    /// An instant certainly not later than the moment at which the store began the present TTL.
    ///
    /// For our own request: just before it left. For a grant that another client's release handed to us: just
    /// before the last request of this waiter left that the store answered "still waiting", never
    /// the arrival of the news.
    fn counted_from(&self) -> Instant;

    /// The TTL that the store granted, not the one asked for.
    fn ttl(&self) -> Ttl;

    /// Whether the present TTL is a short one, to begin with: a grant that another client's release handed over. The first
    /// renewal sets the whole, and is sent soon, 20 ms after the guard has been handed out.
    fn is_provisional(&self) -> bool {
        false
    }

    /// Sets the TTL anew, if the lease is still this owner's.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Lost`] when the store says that it is not; every other error is unknown.
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any await.
    fn renew(&mut self) -> impl Future<Output = Result<()>> + Send;

    /// Gives the lease back, if it is still this owner's. Asking twice is allowed.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Lost`] when it was not held any more;
    /// [`ErrorKind::Indeterminate`] when that is unknown.
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any await.
    fn release(&mut self) -> impl Future<Output = Result<()>> + Send;

    /// Ready when the store itself reports that the lease has ended, such as by its session's end.
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any await.
    fn ended(&mut self) -> impl Future<Output = ()> + Send {
        std::future::pending()
    }
}

/// What a store answers to an owner that does not hold the lock, or not any more.
#[must_use]
pub fn not_held(name: &LockName) -> Error {
    Error::new(ErrorKind::Lost, format!("`{name}` is not held by this owner any more"))
}

/// When a broken lock becomes free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Break {
    /// No renewal is taken any more; free when the holder releases, or at the end of the TTL that runs.
    AtExpiry,
    /// Free at once. The holder may still be at work: only a fence protects.
    Now,
}

/// What every store can tell and do to any lock, so that every command works on every store.
pub trait Inspect {
    /// The holders of up to `limit` locks, by name, from the first name after `after`.
    ///
    /// # Errors
    ///
    /// When the store could not be asked.
    fn list(
        &self,
        after: Option<&LockName>,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<HolderInfo>>> + Send;

    /// Who holds `name`; `None` when nobody does.
    ///
    /// # Errors
    ///
    /// When the store could not be asked.
    fn holder(&self, name: &LockName) -> impl Future<Output = Result<Option<HolderInfo>>> + Send;

    /// Takes `name` from its holder, who reads lost at its next renewal. Returns who held it.
    ///
    /// # Errors
    ///
    /// When the store could not be asked, or it is unknown what it did.
    fn break_lock(
        &self,
        name: &LockName,
        when: Break,
    ) -> impl Future<Output = Result<Option<HolderInfo>>> + Send;

    /// Removes what is no longer needed, and says how many records that were. Tokens still never repeat.
    ///
    /// # Errors
    ///
    /// When the store could not be asked.
    fn prune(&self) -> impl Future<Output = Result<u64>> + Send;
}
