//! Where locks are asked for.

use std::{
    future::{Future, IntoFuture},
    pin::Pin,
    sync::Arc,
};

use tokio::sync::{Semaphore, SemaphorePermit, oneshot};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::Instrument;

use crate::{
    Error, ErrorKind, Guard, HolderInfo, Identity, LeaseState, LockName, Options, OwnerId, Result,
    Ttl,
    clock::{self, Deadline},
    keeper::{self, Errand, Shared, Start, TokenOf},
    queue::{Queue, Turn},
    spi::{Backend, BoundTo, Break, CALL_LIMIT, Request, Wait},
};

/// Acquires locks from one store. Cheap to clone; clones share everything.
///
/// ```
/// # async fn report() {}
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> cerrojo::Result<()> {
/// use std::time::Duration;
/// use cerrojo::{Locker, Ttl, backend::memory::Memory};
///
/// let locks = Locker::new(Memory::new());
/// let guard = locks.acquire("nightly-report").await?; // a TTL of 30 s, waits until dropped
/// guard.run(report()).await?;
/// guard.release().await?;
///
/// let quick = locks.acquire("invoices/42").ttl(Ttl::secs(10)?).wait(Duration::from_secs(3)).await?;
/// println!("token {}", quick.token());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Locker<B> {
    inner: Arc<Inner<B>>,
}

#[derive(Debug)]
struct Inner<B> {
    shared: Arc<Shared<B>>,
    /// That of the options, shared by all requests.
    identity: Arc<Identity>,
    queue: Arc<Queue>,
    keepers: TaskTracker,
    closed: CancellationToken,
    places: Semaphore,
}

impl<B> Clone for Locker<B> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<B: Backend> Locker<B> {
    /// A locker with default [`Options`]. Does no I/O.
    pub fn new(backend: B) -> Self {
        Self::with_options(backend, Options::default())
    }

    /// A locker with these options. Does no I/O.
    pub fn with_options(backend: B, options: Options) -> Self {
        let places = Semaphore::new(options.waiters_max.min(Semaphore::MAX_PERMITS));
        let inner = Inner {
            identity: Arc::new(options.identity.clone()),
            shared: Arc::new(Shared { backend, options }),
            queue: Arc::default(),
            keepers: TaskTracker::new(),
            closed: CancellationToken::new(),
            places,
        };
        Self { inner: Arc::new(inner) }
    }

    /// Acquires `name`: await the answer, or set a [`ttl`](Acquire::ttl) and a [`wait`](Acquire::wait) first.
    ///
    /// Unless said otherwise the TTL is 30 s, renewed in the background for as long as the guard lives, and
    /// it waits until granted or dropped. Tasks of one process are served in order; what the order is between processes
    /// is the backend's to say.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Contended`] when waiting was over, with [who holds it](Error::holder);
    /// [`ErrorKind::Invalid`] for a bad name, before any I/O, and outside of a Tokio runtime;
    /// [`ErrorKind::Unavailable`], [`ErrorKind::Indeterminate`] or [`ErrorKind::Corrupt`] when the store fails. Nothing is
    /// held after an error, but after an indeterminate one the name may stay locked for a TTL.
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any time: the waiter leaves the store's queue, and a grant that comes late is given back.
    pub fn acquire<N>(&self, name: N) -> Acquire<'_, B>
    where
        N: TryInto<LockName>,
        N::Error: Into<Error>,
    {
        let wait = Wait::Forever;
        let name = name.try_into().map_err(Into::into);
        Acquire { locker: self, name, ttl: Ttl::default(), wait, bound_to: BoundTo::default() }
    }

    /// Acquires `name` only if it is free now. The same as `acquire(name).wait(Wait::No)`.
    ///
    /// # Errors
    ///
    /// As [`Locker::acquire`]; [`ErrorKind::Contended`] when it is not free.
    ///
    /// # Cancel safety
    ///
    /// As [`Locker::acquire`].
    pub fn try_acquire<N>(&self, name: N) -> Acquire<'_, B>
    where
        N: TryInto<LockName>,
        N::Error: Into<Error>,
    {
        self.acquire(name).wait(Wait::No)
    }

    /// Takes up a lease by its [owner id](Guard::owner), wherever it was acquired, and keeps it from now on with this TTL.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Lost`] when this owner does not hold `name`; else as [`Locker::acquire`].
    ///
    /// # Cancel safety
    ///
    /// When dropped before the answer, the lease is released if it was taken up.
    pub async fn resume(
        &self,
        name: &LockName,
        owner: OwnerId,
        ttl: Ttl,
    ) -> Result<Guard<TokenOf<B>>> {
        self.ask(Start::Resume, Request::new(name.clone(), ttl).with_owner(owner), None).await
    }

    /// Gives back the lease of an owner, wherever it was acquired.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Lost`] when this owner did not hold `name`; otherwise it is unknown.
    ///
    /// # Cancel safety
    ///
    /// When dropped, it may or may not take effect.
    pub async fn release(&self, name: &LockName, owner: OwnerId) -> Result<()> {
        limited("release", self.backend().give_back(name, owner)).await
    }

    /// Takes no more acquisitions, ends the waiting ones, and waits until everything that was held is released.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Indeterminate`] when locks were still held or being released at the deadline.
    ///
    /// # Cancel safety
    ///
    /// May be dropped and called again; the locker stays closed.
    pub async fn close(&self, deadline: Deadline) -> Result<()> {
        self.inner.closed.cancel();
        self.inner.keepers.close();
        clock::until(deadline.instant(), self.inner.keepers.wait()).await.map_err(|elapsed| {
            let open = self.inner.keepers.len();
            let message = format!(
                "{open} locks were not yet released when closing was over; their TTL frees them"
            );
            Error::new(ErrorKind::Indeterminate, message).with_source(elapsed)
        })
    }

    /// The holders of up to `limit` locks, by name, from the first name after `after`.
    ///
    /// # Errors
    ///
    /// When the store could not be asked.
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any time.
    pub async fn list(&self, after: Option<&LockName>, limit: usize) -> Result<Vec<HolderInfo>> {
        limited("list", self.backend().list(after, limit)).await
    }

    /// Who holds `name`; `None` when nobody does.
    ///
    /// # Errors
    ///
    /// When the store could not be asked.
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any time.
    pub async fn holder(&self, name: &LockName) -> Result<Option<HolderInfo>> {
        limited("show", self.backend().holder(name)).await
    }

    /// Takes `name` from its holder, who reads lost at its next renewal; says who that was.
    ///
    /// # Errors
    ///
    /// When the store could not be asked, or it is unknown what it did.
    ///
    /// # Cancel safety
    ///
    /// When dropped, it may or may not take effect.
    pub async fn break_lock(&self, name: &LockName, when: Break) -> Result<Option<HolderInfo>> {
        let broken = limited("break", self.backend().break_lock(name, when)).await?;
        if let Some(holder) = &broken {
            tracing::warn!(lock = %name, ?when, owner = holder.owner, token = holder.token, "broken");
        }
        Ok(broken)
    }

    /// Removes from the store what is no longer needed, and says how many records that were.
    ///
    /// # Errors
    ///
    /// When the store could not be asked.
    ///
    /// # Cancel safety
    ///
    /// When dropped, it may or may not take effect.
    pub async fn prune(&self) -> Result<u64> {
        limited("prune", self.backend().prune()).await
    }

    fn backend(&self) -> &B {
        &self.inner.shared.backend
    }

    /// Starts the keeper of one acquisition and waits for its answer.
    async fn ask(
        &self,
        start: Start,
        request: Request,
        turn: Option<Turn>,
    ) -> Result<Guard<TokenOf<B>>> {
        let withdraw = Withdraw(request.cancel_handle());
        let (reply, answer) = oneshot::channel();
        let name = request.name().clone();
        let shared = Arc::clone(&self.inner.shared);
        let runtime = tokio::runtime::Handle::try_current().map_err(no_runtime)?;
        self.inner
            .keepers
            .spawn_on(keeper::serve(Errand { start, shared, request, turn, reply }), &runtime);
        let answer = tokio::select! {
            answer = answer => answer,
            () = self.inner.closed.cancelled() => return Err(closed()),
        };
        drop(withdraw);
        answer.unwrap_or_else(|_| {
            Err(Error::new(
                ErrorKind::Indeterminate,
                format!("the runtime ended while `{name}` was being acquired"),
            ))
        })
    }

    fn place(&self) -> Result<SemaphorePermit<'_>> {
        self.inner.places.try_acquire().map_err(|_| {
            let max = self.inner.shared.options.waiters_max;
            let message =
                format!("{max} acquisitions are under way already (Options::waiters_max)");
            Error::new(ErrorKind::Unavailable, message)
        })
    }
}

/// Withdraws the request when the caller goes away before the answer.
struct Withdraw(crate::spi::CancelHandle);

impl Drop for Withdraw {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// An acquisition that has not started yet: await it.
#[must_use = "nothing is acquired until this is awaited"]
#[derive(Debug)]
pub struct Acquire<'a, B> {
    locker: &'a Locker<B>,
    name: Result<LockName>,
    ttl: Ttl,
    wait: Wait,
    bound_to: BoundTo,
}

impl<B: Backend> Acquire<'_, B> {
    /// The length of the lease, renewed at each third of it. Default: 30 s.
    ///
    /// After a crash it is how long others wait; while the store is away it is how long the holder may work on.
    pub fn ttl(mut self, ttl: Ttl) -> Self {
        self.ttl = ttl;
        self
    }

    /// How long to wait: a [`Duration`](std::time::Duration) from now, a [`Deadline`], or a [`Wait`]. Default: [`Wait::Forever`].
    pub fn wait(mut self, wait: impl Into<Wait>) -> Self {
        self.wait = wait.into();
        self
    }

    /// What must have ended before a store may pass the lease on early. Default: this process.
    pub fn bound_to(mut self, bound_to: BoundTo) -> Self {
        self.bound_to = bound_to;
        self
    }

    async fn run(self) -> Result<Guard<TokenOf<B>>> {
        let (name, locker) = (self.name?, self.locker);
        let shared = &locker.inner.shared;
        shared.options.check()?;
        let labels = shared.options.labels(shared.backend.kind(), &name);
        let acquisition = labels.acquisition();
        let request = Request::new(name, self.ttl)
            .with_wait(self.wait)
            .with_identity(Arc::clone(&locker.inner.identity))
            .with_bound_to(self.bound_to);
        let span = tracing::debug_span!("acquire", lock = %request.name(), ttl = ?self.ttl);
        acquisition.answered(locker.obtain(&request).instrument(span).await)
    }
}

impl<B: Backend> Locker<B> {
    /// A guard that is valid as it is handed out: one whose validity passed on the way here is given back.
    async fn obtain(&self, request: &Request) -> Result<Guard<TokenOf<B>>> {
        let place = self.place()?;
        loop {
            let turn = self.turn(request).await?;
            let guard = self.ask(Start::Acquire, request.afresh(), turn).await?;
            if guard.state() != LeaseState::Lost {
                drop(place);
                return Ok(guard);
            }
            if request.wait().is_over() {
                return Err(late(request.name()));
            }
        }
    }

    /// Our place in this process's line; none for a request that does not wait.
    async fn turn(&self, request: &Request) -> Result<Option<Turn>> {
        if self.inner.closed.is_cancelled() {
            return Err(closed());
        }
        if matches!(request.wait(), Wait::No) {
            return Ok(None);
        }
        let turn = self.inner.queue.turn(request.name());
        tokio::select! {
            biased;
            turn = request.wait().bound(turn) => match turn {
                Some(turn) => Ok(Some(turn)),
                None => Err(Box::pin(self.refused_in_line(request.name())).await),
            },
            () = self.inner.closed.cancelled() => Err(closed()),
        }
    }

    /// The deadline passed behind others of this process.
    async fn refused_in_line(&self, name: &LockName) -> Error {
        let holder = self.holder(name).await.ok().flatten();
        Error::new(ErrorKind::Contended, format!("`{name}` is taken")).with_holder(holder)
    }
}

impl<'a, B: Backend> IntoFuture for Acquire<'a, B> {
    type Output = Result<Guard<TokenOf<B>>>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}

async fn limited<T>(what: &str, call: impl Future<Output = Result<T>>) -> Result<T> {
    clock::within(CALL_LIMIT, call).await.unwrap_or_else(|elapsed| {
        let message = format!("{what}: the store did not answer within {CALL_LIMIT:?}");
        Err(Error::new(ErrorKind::Indeterminate, message).with_source(elapsed))
    })
}

fn late(name: &LockName) -> Error {
    Error::new(
        ErrorKind::Unavailable,
        format!("the grant of `{name}` came too late to be used, and was given back"),
    )
}

fn closed() -> Error {
    Error::new(ErrorKind::Invalid, "this locker is closed")
}

fn no_runtime(error: tokio::runtime::TryCurrentError) -> Error {
    Error::new(ErrorKind::Invalid, "acquire needs a Tokio runtime: none runs here")
        .with_source(error)
}
