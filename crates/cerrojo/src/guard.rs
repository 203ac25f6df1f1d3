//! The user's side of a grant.

use std::{fmt, future::Future, pin::pin, task::Poll};

use tokio::sync::oneshot;

use crate::{
    Claim, Error, ErrorKind, FencingToken, LeaseState, LockName, LostSignal, NoToken, OwnerId,
    Result, StoreId, Token, clock::Instant,
};

/// Where the end of a hold is answered.
pub(crate) type Reply = oneshot::Sender<Result<()>>;

/// How a guard ends its hold. A guard that is dropped says nothing, which means release.
#[derive(Debug)]
pub(crate) enum Farewell {
    /// Give the lease back.
    Release(Reply),
    /// Let it stand until its TTL ends.
    Detach(Reply),
}

/// A held lock. Dropping it gives the lock back in the background.
///
/// It may be dropped anywhere: in or outside of a runtime, during a panic, after shutdown. Locks are not
/// re-entrant: acquiring a name again while holding it waits for oneself.
#[must_use = "dropping the guard gives the lock back"]
#[clippy::has_significant_drop]
pub struct Guard<T: Token> {
    name: LockName,
    grant: T::Grant,
    owner: OwnerId,
    signal: LostSignal,
    /// Closed by being dropped, which the keeper takes as a release that nobody waits for.
    farewell: oneshot::Sender<Farewell>,
}

/// A held lock with a fencing token: for correctness, together with a [fence](crate::fence) at the resource.
pub type FencedGuard = Guard<FencingToken>;

/// A held lock without a token: for efficiency. Two holders at once are possible, if rare.
pub type ApproximateGuard = Guard<NoToken>;

impl<T: Token> Guard<T> {
    pub(crate) fn new(
        name: LockName,
        owner: OwnerId,
        grant: T::Grant,
        signal: LostSignal,
        farewell: oneshot::Sender<Farewell>,
    ) -> Self {
        Self { name, grant, owner, signal, farewell }
    }

    /// What is locked.
    pub fn name(&self) -> &LockName {
        &self.name
    }

    /// Who holds it: with this id, [`Locker::resume`](crate::Locker::resume) and
    /// [`Locker::release`](crate::Locker::release) act on the lease from anywhere. A secret.
    pub fn owner(&self) -> OwnerId {
        self.owner
    }

    /// The state by the clock, now.
    pub fn state(&self) -> LeaseState {
        self.signal.state()
    }

    /// Until when the lease may be acted on unless renewed again; `None` once lost.
    ///
    /// It is the TTL that the store granted, counted from before the request was sent, less the
    /// [drift](crate::Drift).
    pub fn valid_until(&self) -> Option<Instant> {
        self.signal.valid_until()
    }

    /// How long the lease may be acted on unless renewed again; zero once lost. For a lock that another's release has handed
    /// over it may be short at first: the renewal to the whole TTL is under way.
    pub fn remaining(&self) -> std::time::Duration {
        self.valid_until().map(Instant::remaining).unwrap_or_default()
    }

    /// How often the lease has been renewed.
    pub fn renewals(&self) -> u64 {
        self.signal.renewals()
    }

    /// Ready once the lease can no longer be trusted. See [`LostSignal::lost`].
    ///
    /// # Cancel safety
    ///
    /// May be dropped and called again at any time.
    pub async fn lost(&self) {
        self.signal.lost().await;
    }

    /// An owned, cloneable signal for spawned tasks.
    pub fn signal(&self) -> LostSignal {
        self.signal.clone()
    }

    /// Runs `work` under the lock, and drops it as soon as the lease is lost.
    ///
    /// The clock is read before every poll of the work, so it is never polled after the end of validity. A poll that
    /// runs on past it cannot be stopped: only a fence refuses what such a poll writes.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Lost`] when the lease was lost before the work was done.
    ///
    /// # Cancel safety
    ///
    /// As cancel safe as `work`. The lock stays held until the guard is released or dropped.
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output> {
        let mut work = pin!(work);
        let mut lost = pin!(self.lost());
        std::future::poll_fn(|context| {
            if lost.as_mut().poll(context).is_ready() || self.state() == LeaseState::Lost {
                return Poll::Ready(Err(self.lost_error()));
            }
            work.as_mut().poll(context).map(Ok)
        })
        .await
    }

    /// Gives the lock back now, and says whether that worked: `Ok` means released.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Lost`]: it was not held any more, and nobody else's lease was touched.
    /// [`ErrorKind::Indeterminate`]: unknown; it is asked again in the background until the TTL has ended.
    ///
    /// # Cancel safety
    ///
    /// Once polled, the release goes on in the background when this is dropped; before that, dropping it drops the
    /// guard, which releases too.
    pub async fn release(self) -> Result<()> {
        self.end(Farewell::Release).await
    }

    /// Lets the lease stand until its TTL ends: nothing renews or releases it any more, but whoever has its
    /// [owner id](Guard::owner) still can. One that was handed over by another's release a moment ago is renewed first, so that it
    /// stands for the whole TTL.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Lost`]: it was not held any more. Any other: that renewal failed, and the lease is released.
    ///
    /// # Cancel safety
    ///
    /// Once polled it takes effect also when this is dropped; before that, dropping it drops the guard, which releases.
    pub async fn detach(self) -> Result<()> {
        self.end(Farewell::Detach).await
    }

    async fn end(self, farewell: impl FnOnce(Reply) -> Farewell) -> Result<()> {
        let (reply, answer) = oneshot::channel();
        let asked = self.farewell.send(farewell(reply)).is_ok();
        match answer.await {
            Ok(result) if asked => result,
            _ if self.signal.state() == LeaseState::Lost => Err(lost_error(&self.name)),
            _ => {
                let name = &self.name;
                let message =
                    format!("the runtime that kept `{name}` has ended; the TTL frees the lock");
                Err(Error::new(ErrorKind::Indeterminate, message))
            }
        }
    }

    fn lost_error(&self) -> Error {
        lost_error(&self.name)
    }
}

impl Guard<FencingToken> {
    /// The fencing token: hand it to the resource with every access.
    pub fn token(&self) -> FencingToken {
        FencingToken::mint(&self.grant)
    }

    /// The id of the store that granted the token. Tokens of different stores cannot be compared.
    pub fn store_id(&self) -> StoreId {
        self.grant.store
    }

    /// What this holder shows to a resource that asks the store itself, such as a guarded transaction.
    pub fn claim(&self) -> Claim {
        let Self { name, owner, .. } = self;
        Claim { name: name.clone(), owner: *owner, token: self.token(), store: self.store_id() }
    }

    /// Forgets the token. There is no way back.
    pub fn into_approximate(self) -> ApproximateGuard {
        let Self { name, owner, signal, farewell, .. } = self;
        Guard { name, grant: (), owner, signal, farewell }
    }
}

/// For calls that take a claim: hand them the guard itself.
impl From<&FencedGuard> for Claim {
    fn from(guard: &FencedGuard) -> Self {
        guard.claim()
    }
}

impl<T: Token> fmt::Debug for Guard<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("name", &self.name)
            .field("token", &T::number(&self.grant))
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}

pub(crate) fn lost_error(name: &LockName) -> Error {
    Error::new(
        ErrorKind::Lost,
        format!("the lease of `{name}` is lost: stop touching what it protects"),
    )
}
