//! What a case has at hand: one empty store and ways to reach it.

use std::{
    future::Future,
    path::{Path, PathBuf},
    time::Duration,
};

use tokio::{runtime::Builder, sync::oneshot};

use super::{
    Capabilities, Harness, Instance, Severed,
    case::Failure,
    child::Child,
    faulty::{Faults, Faulty},
};
use crate::{
    Guard, Instant, InvalidName, LockName, Locker, OwnerId, Result, Ttl, clock,
    spi::{Acquired, Backend, Lease, Request},
};

/// How long anything may take that has no reason to wait: generous, for a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) type LeaseOf<H> = <<H as Harness>::Backend as Backend>::Lease;
pub(crate) type GuardOf<H> = Guard<<LeaseOf<H> as Lease>::Token>;
pub(crate) type FaultyLocker<H> = Locker<Faulty<<H as Harness>::Backend>>;

/// One store that a case has for itself.
pub(crate) struct Site<H: Harness> {
    harness: H,
    instance: H::Instance,
    can: Capabilities,
}

impl<H: Harness> Site<H> {
    pub(crate) async fn new(harness: H) -> Result<Self> {
        let (instance, can) = (harness.fresh().await?, harness.capabilities());
        Ok(Self { harness, instance, can })
    }

    pub(crate) fn can(&self) -> &Capabilities {
        &self.can
    }

    /// A short TTL that a busy machine can still renew in time.
    pub(crate) fn short_ttl(&self) -> Ttl {
        let short = Ttl::try_from(Duration::from_secs(1)).unwrap_or(Ttl::MIN);
        short.max(self.can.ttl_min)
    }

    /// A TTL that does not end during a case: what is free earlier was given back.
    pub(crate) fn long_ttl(&self) -> Ttl {
        let long = Ttl::try_from(Duration::from_secs(300)).unwrap_or(Ttl::MAX);
        long.min(self.can.ttl_max)
    }

    /// A connection of its own, as another process would have.
    pub(crate) async fn backend(&self) -> Result<H::Backend> {
        self.instance.connect().await
    }

    /// A locker with a connection of its own.
    pub(crate) async fn locker(&self) -> Result<Locker<H::Backend>> {
        self.backend().await.map(Locker::new)
    }

    /// A locker whose connection fails on command.
    pub(crate) async fn faulty(&self) -> Result<(FaultyLocker<H>, Faults)> {
        let (backend, faults) = Faulty::new(self.backend().await?);
        Ok((Locker::new(backend), faults))
    }

    /// A process of its own.
    pub(crate) async fn child(&self) -> Result<Child, Failure> {
        let url =
            self.instance.url().ok_or_else(|| Failure::new("a store for processes needs a URL"))?;
        Child::open(&self.harness.name(), &url).await
    }

    /// Cuts the store off.
    pub(crate) fn sever(&self) -> Result<Severed, Failure> {
        self.instance.sever().ok_or_else(|| Failure::new("a store that can be severed has to be"))
    }
}

/// The name that most cases lock.
pub(crate) fn job() -> Result<LockName, InvalidName> {
    "job".parse()
}

/// What has to come, within [`PATIENCE`].
#[track_caller]
pub(crate) fn soon<F: Future>(
    what: &str,
    work: F,
) -> impl Future<Output = Result<F::Output, Failure>> + use<F> {
    let late = Failure::new(format!("{what}: not within {PATIENCE:?}"));
    async move { clock::within(PATIENCE, work).await.map_err(|_| late) }
}

/// Waits until `condition` holds, looking often, within [`PATIENCE`].
#[track_caller]
pub(crate) fn eventually(
    what: &str,
    mut condition: impl FnMut() -> bool,
) -> impl Future<Output = Result<(), Failure>> {
    soon(what, async move {
        while !condition() {
            clock::sleep(Duration::from_millis(2)).await;
        }
    })
}

/// The lease that the backend grants at once.
#[track_caller]
pub(crate) fn granted<B: Backend>(
    backend: &B,
    request: &Request,
) -> impl Future<Output = Result<B::Lease, Failure>> {
    let refused = Failure::new(format!("{:?} was refused", request.name()));
    async move {
        match backend.acquire(request).await? {
            Acquired::Granted(lease) => Ok(lease),
            Acquired::Refused(_) => Err(refused),
        }
    }
}

/// Enters as soon as it can, and says when that was by the clock of the lock.
pub(crate) async fn enter<B: Backend>(
    locker: &Locker<B>,
    name: &LockName,
    ttl: Ttl,
) -> Result<(Guard<<B::Lease as Lease>::Token>, Instant), Failure> {
    let guard = locker.acquire(name).ttl(ttl).wait(PATIENCE).await?;
    Ok((guard, Instant::now()))
}

/// Runs work on a thread and a runtime of its own, which are gone when the answer is there.
pub(crate) fn on_own_thread<T, F>(work: impl FnOnce() -> F + Send + 'static) -> oneshot::Receiver<T>
where
    T: Send + 'static,
    F: Future<Output = T>,
{
    let (sender, answer) = oneshot::channel();
    std::thread::spawn(move || {
        // Without a runtime there is no answer, which the other side takes for a failure.
        let runtime = Builder::new_current_thread().enable_all().build().ok()?;
        let output = runtime.block_on(work());
        runtime.shutdown_timeout(Duration::from_secs(2));
        sender.send(output).ok()
    });
    answer
}

/// A folder that is removed when this is dropped.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new() -> std::io::Result<Self> {
        let name = format!("cerrojo-conformance-{}", OwnerId::random().to_hex());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir(&folder)?;
        Ok(Self(folder))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed is left to the system.
        drop(std::fs::remove_dir_all(&self.0));
    }
}
