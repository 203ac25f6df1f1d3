//! A lease that is held, of either kind of store, and what a script is told about it.

use cerrojo::{
    AnyLocker, ApproximateGuard, BoundTo, Erased, Error, ErrorKind, FencedGuard, Instant, LockName,
    Locker, LostSignal, OwnerId, Result, Ttl,
};
use serde_json::{Value, json};

use crate::{args::Asking, output};

/// A lease that is held and renewed.
pub(crate) struct Held {
    guard: ApproximateGuard,
    grant: Grant,
}

/// What was granted.
#[derive(Clone)]
pub(crate) struct Grant {
    name: LockName,
    owner: OwnerId,
    token: Option<String>,
    store_id: Option<String>,
    ttl: Ttl,
    valid_until: Option<Instant>,
}

/// What is asked for.
pub(crate) struct Wanted<'a> {
    pub(crate) name: &'a LockName,
    pub(crate) ttl: Ttl,
    pub(crate) asking: &'a Asking,
    pub(crate) bound_to: BoundTo,
}

impl Held {
    pub(crate) async fn acquire(store: &AnyLocker, wanted: Wanted<'_>) -> Result<Self> {
        let ttl = wanted.ttl;
        let held = match store {
            AnyLocker::Fenced(locker) => Self::fenced(ask(locker, wanted).await?, ttl),
            AnyLocker::Approximate(locker) => Self::approximate(ask(locker, wanted).await?, ttl),
            _ => return Err(unknown_kind()),
        };
        Ok(held.settled().await)
    }

    /// A lock that another's release has handed over is valid for a moment only, until its first renewal, which is under
    /// way: what a command is given is the whole TTL.
    async fn settled(mut self) -> Self {
        let signal = self.signal();
        let is_short = |until: Option<Instant>| {
            until.is_some_and(|until| until.remaining() < self.grant.ttl.get() / 2)
        };
        let mut valid_until = signal.valid_until();
        while is_short(valid_until) {
            valid_until = signal.valid_until_changes(valid_until).await;
        }
        self.grant.valid_until = valid_until;
        self
    }

    /// Takes up what `owner` holds.
    pub(crate) async fn resume(
        store: &AnyLocker,
        name: &LockName,
        owner: OwnerId,
        ttl: Ttl,
    ) -> Result<Self> {
        match store {
            AnyLocker::Fenced(locker) => {
                Ok(Self::fenced(locker.resume(name, owner, ttl).await?, ttl))
            }
            AnyLocker::Approximate(locker) => {
                Ok(Self::approximate(locker.resume(name, owner, ttl).await?, ttl))
            }
            _ => Err(unknown_kind()),
        }
    }

    fn fenced(guard: FencedGuard, ttl: Ttl) -> Self {
        let (token, store_id) = (guard.token().to_string(), guard.store_id().to_string());
        let mut held = Self::approximate(guard.into_approximate(), ttl);
        held.grant.token = Some(token);
        held.grant.store_id = Some(store_id);
        held
    }

    fn approximate(guard: ApproximateGuard, ttl: Ttl) -> Self {
        let grant = Grant {
            name: guard.name().clone(),
            owner: guard.owner(),
            token: None,
            store_id: None,
            ttl,
            valid_until: guard.valid_until(),
        };
        Self { guard, grant }
    }

    pub(crate) fn grant(&self) -> &Grant {
        &self.grant
    }

    /// Follows the lease, and is cheap to have beside it.
    pub(crate) fn signal(&self) -> LostSignal {
        self.guard.signal()
    }

    /// Ready once the lease can no longer be trusted.
    pub(crate) async fn lost(&self) {
        self.guard.lost().await;
    }

    pub(crate) async fn release(self) -> Result<()> {
        self.guard.release().await
    }

    /// Lets the lease stand until its TTL ends.
    pub(crate) async fn detach(self) -> Result<Grant> {
        self.guard.detach().await?;
        Ok(self.grant)
    }
}

impl Grant {
    pub(crate) fn name(&self) -> &LockName {
        &self.name
    }

    pub(crate) fn owner(&self) -> OwnerId {
        self.owner
    }

    pub(crate) fn token(&self) -> Option<&str> {
        self.token.as_deref()
    }

    pub(crate) fn store_id(&self) -> Option<&str> {
        self.store_id.as_deref()
    }

    /// All that a script needs to go on with the lease: the only place where an owner id is shown whole.
    pub(crate) fn json(&self) -> Value {
        let valid_for = self.valid_until.map(Instant::remaining).unwrap_or_default();
        json!({
            "name": self.name.as_str(),
            "owner": self.owner.to_hex(),
            "token": self.token,
            "store_id": self.store_id,
            "valid_for_ms": output::millis(valid_for),
            "ttl_ms": output::millis(self.ttl.get()),
        })
    }
}

async fn ask<T: cerrojo::Token>(
    locker: &Locker<Erased<T>>,
    wanted: Wanted<'_>,
) -> Result<cerrojo::Guard<T>> {
    let acquire = locker.acquire(wanted.name).ttl(wanted.ttl).wait(wanted.asking.waiting());
    acquire.bound_to(wanted.bound_to).await
}

fn unknown_kind() -> Error {
    Error::new(ErrorKind::Invalid, "this kind of store is not known here")
}
