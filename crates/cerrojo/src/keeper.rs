//! One task for one lease: obtains it, renews it, declares its loss and gives it back.
//!
//! The only code that renews, and the only code that decides that a lease is lost. States: held, at risk (a
//! renewal has failed, validity still runs), lost, released. An error is unknown and is tried again with
//! backoff; lost is what the store says explicitly, the end of its session, or the end of validity.

use std::{sync::Arc, time::Duration};

use tokio::sync::oneshot;
use tracing::Instrument;

use crate::{
    Error, ErrorKind, Guard, LeaseState, LockName, Options, Result, Token,
    clock::{self, Instant},
    guard::{Farewell, Reply, lost_error},
    queue::Turn,
    rng,
    spi::{Acquired, Backend, CALL_LIMIT, Lease, Refusal, Request, Wait},
    status::{LostSignal, Published},
    validity::Validity,
    watched::Labels,
};

pub(crate) type TokenOf<B> = <<B as Backend>::Lease as Lease>::Token;

/// How often a grant that came too late is asked for anew before that is an error.
const LATE_GRANTS_MAX: u32 = 3;

/// What every keeper of a locker needs.
#[derive(Debug)]
pub(crate) struct Shared<B> {
    pub(crate) backend: B,
    pub(crate) options: Options,
}

/// How a keeper comes by its lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// By a new grant.
    Acquire,
    /// By taking up what the request's owner holds.
    Resume,
}

/// One acquisition on its way.
#[derive(Debug)]
pub(crate) struct Errand<B: Backend> {
    pub(crate) start: Start,
    pub(crate) shared: Arc<Shared<B>>,
    pub(crate) request: Request,
    /// Held until the lease has been given back: who is next in this process then asks the store.
    pub(crate) turn: Option<Turn>,
    pub(crate) reply: oneshot::Sender<Result<Guard<TokenOf<B>>>>,
}

/// Acquires, hands the guard out, and keeps the lease until it is released or lost.
pub(crate) async fn serve<B: Backend>(errand: Errand<B>) {
    // Boxed, so that a held lease does not carry the memory of its acquisition.
    if let Some(kept) = Box::pin(start(errand)).await {
        let span = tracing::debug_span!("lease", lock = %kept.keeper.name);
        kept.keeper.keep(kept.reply).instrument(span).await;
        drop(kept.turn);
    }
}

/// A lease that was granted, and who waits for it.
struct Kept<L: Lease> {
    keeper: Box<Keeper<L>>,
    reply: oneshot::Sender<Result<Guard<L::Token>>>,
    turn: Option<Turn>,
}

/// None when there is nothing to keep: whoever asked has been told.
async fn start<B: Backend>(errand: Errand<B>) -> Option<Kept<B::Lease>> {
    let Errand { start, shared, request, turn, reply } = errand;
    let lease = match start {
        Start::Acquire => obtain(&shared, request.clone()).await,
        Start::Resume => resume(&shared, &request).await,
    };
    match lease {
        Ok(lease) => {
            let keeper = Box::new(Keeper::new(lease, &shared, request.name()));
            Some(Kept { keeper, reply, turn })
        }
        Err(error) => {
            answer(reply, Err(error));
            None
        }
    }
}

async fn resume<B: Backend>(shared: &Shared<B>, request: &Request) -> Result<B::Lease> {
    let (name, owner) = (request.name(), request.owner());
    let resumed = clock::within(CALL_LIMIT, shared.backend.resume(name, owner, request.ttl()));
    resumed.await.unwrap_or_else(|elapsed| {
        let message =
            format!("it is unknown whether `{name}` was taken up: the store did not answer");
        Err(Error::new(ErrorKind::Indeterminate, message).with_source(elapsed))
    })
}

fn answer<T>(reply: oneshot::Sender<T>, result: T) {
    // Nobody listens any more: there is nobody to tell.
    drop(reply.send(result));
}

fn contended(name: &LockName, refusal: Refusal) -> Error {
    let error = Error::new(ErrorKind::Contended, format!("`{name}` is taken"));
    let error = error.with_holder(refusal.holder);
    match refusal.why {
        Some(why) => error.with_source(why),
        None => error,
    }
}

/// Asks until there is a grant with at least half of its TTL left, a refusal, or an error.
async fn obtain<B: Backend>(shared: &Shared<B>, mut request: Request) -> Result<B::Lease> {
    for _ in 0..LATE_GRANTS_MAX {
        let mut lease = match acquire(shared, &request).await? {
            Acquired::Granted(lease) => lease,
            Acquired::Refused(refusal) => return Err(contended(request.name(), refusal)),
        };
        if freshen(&mut lease, &shared.options).await {
            return Ok(lease);
        }
        give_up(lease, request.name()).await;
        request = request.renewed();
        if request.is_cancelled() {
            break;
        }
    }
    Err(Error::new(
        ErrorKind::Unavailable,
        format!(
            "every grant of `{}` came too late to be used: the store or this process is slower than the TTL",
            request.name()
        ),
    ))
}

/// Asks the store; what failed without being wrong is asked again by the same owner while waiting lasts.
async fn acquire<B: Backend>(shared: &Shared<B>, request: &Request) -> Result<Acquired<B::Lease>> {
    let patience = shared.options.outage_patience;
    let mut outage: Option<Outage> = None;
    loop {
        let error = match shared.backend.acquire(request).await {
            Err(error) => error,
            Ok(answer) => return Ok(answer),
        };
        let outage = outage.get_or_insert_with(|| Outage::new(Instant::now()));
        if !may_ask_again(&error) || outage.is_over(request, patience) {
            give_back(shared, request).await;
            return Err(error);
        }
        tracing::debug!(lock = %request.name(), %error, "acquire failed, asking again");
        outage.pause(request).await;
    }
}

fn may_ask_again(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Indeterminate)
}

/// Errors of acquire, one after another.
struct Outage {
    since: Instant,
    pause: Duration,
}

impl Outage {
    fn new(since: Instant) -> Self {
        Self { since, pause: Duration::from_millis(20) }
    }

    /// Whether asking again has no place: the request does not wait, or not any more, or for too long in vain.
    fn is_over(&self, request: &Request, patience: Duration) -> bool {
        let in_vain =
            matches!(request.wait(), Wait::Forever) && Instant::now().since(self.since) >= patience;
        in_vain || request.wait().is_over() || request.is_cancelled()
    }

    async fn pause(&mut self, request: &Request) {
        let pause = clock::sleep(rng::jitter(self.pause));
        tokio::select! {
            _ = request.wait().bound(pause) => {}
            () = request.cancelled() => {}
        }
        self.pause = (self.pause * 2).min(Duration::from_secs(1));
    }
}

/// After an error the owner may hold the lock or stand in the queue.
async fn give_back<B: Backend>(shared: &Shared<B>, request: &Request) {
    let given =
        clock::within(CALL_LIMIT, shared.backend.give_back(request.name(), request.owner()));
    if let Ok(Err(error)) = given.await {
        tracing::debug!(lock = %request.name(), %error, "could not give back; the TTL will");
    }
}

/// Renews until at least half of the TTL is left (design: invariant 5). False: it cannot be used.
async fn freshen<L: Lease>(lease: &mut L, options: &Options) -> bool {
    for _ in 0..LATE_GRANTS_MAX {
        if validity(lease, options).is_fresh(Instant::now()) {
            return true;
        }
        match clock::within(attempt_limit(lease), lease.renew()).await {
            Ok(Err(error)) if error.kind() == ErrorKind::Lost => return false,
            _ => {}
        }
    }
    !validity(lease, options).has_ended(Instant::now())
}

/// One owner-checked release of what we cannot use.
async fn give_up<L: Lease>(mut lease: L, name: &LockName) {
    if let Ok(Err(error)) = clock::within(CALL_LIMIT, lease.release()).await {
        tracing::debug!(lock = %name, %error, "an unusable grant was not given back");
    }
}

fn validity<L: Lease>(lease: &L, options: &Options) -> Validity {
    Validity::new(lease.counted_from(), lease.ttl(), options.drift)
}

/// A renewal that takes longer is given up, so that there is time for another.
fn attempt_limit<L: Lease>(lease: &L) -> Duration {
    (lease.ttl().get() / 3).max(Duration::from_millis(100)).min(CALL_LIMIT)
}

/// What ends or changes the state.
#[derive(Debug)]
enum Event {
    /// The guard ends its hold, or was dropped.
    Asked(Option<Farewell>),
    Renewed,
    /// A renewal failed; whether the lease is still ours is unknown.
    Failed(Error),
    Lost(Cause),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    Refused,
    SessionEnded,
    ValidityEnded,
}

impl Cause {
    fn as_str(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::SessionEnded => "session_ended",
            Self::ValidityEnded => "validity_ended",
        }
    }
}

/// How keeping ended.
#[derive(Debug)]
enum End {
    Asked(Option<Farewell>),
    Lost,
}

struct Keeper<L: Lease> {
    lease: L,
    name: LockName,
    options: KeeperOptions,
    published: Arc<Published>,
    labels: Labels,
    granted_at: Instant,
}

/// The part of the options that a held lease needs, copied: it outlives no locker.
#[derive(Clone, Copy, Debug)]
struct KeeperOptions {
    drift: crate::Drift,
    tick: Duration,
}

impl<L: Lease> Keeper<L> {
    fn new<B: Backend>(lease: L, shared: &Shared<B>, name: &LockName) -> Self {
        let published = Published::new(validity(&lease, &shared.options).until);
        let labels = shared.options.labels(shared.backend.kind(), name);
        let options = KeeperOptions { drift: shared.options.drift, tick: shared.options.tick };
        Self {
            granted_at: lease.counted_from(),
            lease,
            name: name.clone(),
            options,
            published: Arc::new(published),
            labels,
        }
    }

    /// Hands the guard out and keeps the lease until its end.
    async fn keep(mut self: Box<Self>, reply: oneshot::Sender<Result<Guard<L::Token>>>) {
        let (farewell, mut asked) = oneshot::channel();
        let grant = self.lease.grant();
        tracing::debug!(lock = %self.name, token = L::Token::number(&grant), "acquired");
        // When the caller is gone, the guard is dropped here, which asks for release.
        let signal = LostSignal::new(Arc::clone(&self.published));
        let guard = Guard::new(self.name.clone(), self.lease.owner(), grant, signal, farewell);
        answer(reply, Ok(guard));
        let end = self.watch_over(&mut asked).await;
        self.labels.hold(Instant::now().since(self.granted_at));
        match end {
            End::Asked(farewell) => Box::pin(self.part(farewell)).await,
            End::Lost => Box::pin(self.clear_up(asked)).await,
        }
    }

    /// Renews until the guard asks for release or the lease is lost.
    async fn watch_over(&mut self, asked: &mut oneshot::Receiver<Farewell>) -> End {
        let mut backoff = Backoff::default();
        let mut next = match self.lease.is_provisional() {
            true => Instant::now() + SETTLED_AFTER,
            false => self.validity().renew_at(self.options.tick),
        };
        loop {
            match self.next_event(asked, next).await {
                Event::Asked(farewell) => return self.asked(farewell),
                Event::Renewed if self.publish_renewal() => {
                    backoff = Backoff::default();
                    next = self.validity().renew_at(self.options.tick);
                }
                Event::Renewed => return self.lost(Cause::ValidityEnded),
                Event::Failed(error) => {
                    self.at_risk(&error);
                    next = Instant::now() + backoff.next(self.lease.ttl().get());
                }
                Event::Lost(cause) => return self.lost(cause),
            }
        }
    }

    async fn next_event(
        &mut self,
        asked: &mut oneshot::Receiver<Farewell>,
        renew_at: Instant,
    ) -> Event {
        let until = self.published.read().valid_until;
        tokio::select! {
            biased;
            farewell = &mut *asked => return Event::Asked(farewell.ok()),
            () = self.lease.ended() => return Event::Lost(Cause::SessionEnded),
            () = clock::sleep_until(renew_at.min(until)) => {}
        }
        // Boxed: it is rare, and a lease that only waits does not carry its memory.
        Box::pin(self.renew_unless(asked, until)).await
    }

    async fn renew_unless(
        &mut self,
        asked: &mut oneshot::Receiver<Farewell>,
        until: Instant,
    ) -> Event {
        tokio::select! {
            biased;
            farewell = asked => Event::Asked(farewell.ok()),
            // Races the renewal: a store that hangs cannot delay the end of validity.
            () = clock::sleep_until(until) => Event::Lost(Cause::ValidityEnded),
            event = renew(&mut self.lease) => event,
        }
    }

    fn validity(&self) -> Validity {
        Validity::new(self.lease.counted_from(), self.lease.ttl(), self.options.drift)
    }

    fn asked(&self, farewell: Option<Farewell>) -> End {
        if !self.publish_release() {
            self.lost(Cause::ValidityEnded);
        }
        End::Asked(farewell)
    }

    /// False when the old validity is over by now: somebody may have read lost already, and lost is final.
    fn publish_renewal(&self) -> bool {
        let until = self.validity().until;
        self.published.change(|status| {
            status.state = LeaseState::Held;
            status.valid_until = until;
            status.renewals += 1;
        })
    }

    /// False when the lease was lost before.
    fn publish_release(&self) -> bool {
        self.published.change(|status| status.state = LeaseState::Released)
    }

    fn at_risk(&self, error: &Error) {
        tracing::warn!(lock = %self.name, %error, "a renewal failed; trying again until the validity ends");
        self.labels.renewal_failed();
        let mut before = LeaseState::AtRisk;
        self.published.change(|status| {
            before = std::mem::replace(&mut status.state, LeaseState::AtRisk);
        });
        if before == LeaseState::Held {
            self.labels.at_risk();
        }
    }

    fn lost(&self, cause: Cause) -> End {
        // Lost already if the validity is over.
        let _ = self.published.change(|status| status.state = LeaseState::Lost);
        tracing::warn!(lock = %self.name, cause = cause.as_str(), "lost");
        self.labels.lost(cause.as_str());
        End::Lost
    }

    /// Gives back after a loss: owner-checked, so it can only free what is still ours. Not before the validity ends
    /// or the guard goes: the work may still be stopping, and a broken lock is not yet free.
    async fn clear_up(mut self, asked: oneshot::Receiver<Farewell>) {
        let farewell = clock::until(self.validity().until, asked).await;
        if let Err(error) = self.release_once().await {
            tracing::debug!(lock = %self.name, %error, "nothing to give back after the loss");
        }
        if let Ok(Ok(Farewell::Release(reply) | Farewell::Detach(reply))) = farewell {
            answer(reply, Err(lost_error(&self.name)));
        }
    }

    async fn part(self, farewell: Option<Farewell>) {
        match farewell {
            Some(Farewell::Detach(reply)) if !self.is_lost() => self.detach(reply).await,
            Some(Farewell::Release(reply) | Farewell::Detach(reply)) => {
                self.release(Some(reply)).await;
            }
            None => self.release(None).await,
        }
    }

    /// A lease that stands alone has its whole TTL, or is not left standing.
    async fn detach(mut self, reply: Reply) {
        if !self.lease.is_provisional() {
            return answer(reply, Ok(()));
        }
        let error = match renew(&mut self.lease).await {
            Event::Failed(error) => error,
            Event::Lost(_) => lost_error(&self.name),
            _ => return answer(reply, Ok(())),
        };
        answer(reply, Err(error));
        self.release(None).await;
    }

    fn is_lost(&self) -> bool {
        self.published.read().state == LeaseState::Lost
    }

    /// Gives back, answers, and if the outcome is unknown asks on until the TTL has ended for certain.
    async fn release(mut self, reply: Option<Reply>) {
        let mut result = self.release_once().await;
        let mut known = is_known(&result);
        if self.is_lost() {
            result = Err(lost_error(&self.name));
        }
        tracing::debug!(lock = %self.name, released = result.is_ok(), "release");
        if let Some(reply) = reply {
            answer(reply, result);
        }
        let mut backoff = Backoff::default();
        while !known && !self.validity().has_ended(Instant::now()) {
            clock::sleep(backoff.next(self.lease.ttl().get())).await;
            known = is_known(&self.release_once().await);
        }
    }

    /// Released, not held, or unknown.
    async fn release_once(&mut self) -> Result<()> {
        match clock::within(CALL_LIMIT, self.lease.release()).await {
            Ok(Err(error)) if error.kind() != ErrorKind::Lost => {
                Err(unknown_release(&self.name).with_source(error))
            }
            Ok(known) => known,
            Err(elapsed) => Err(unknown_release(&self.name).with_source(elapsed)),
        }
    }
}

fn is_known(result: &Result<()>) -> bool {
    match result {
        Ok(()) => true,
        Err(error) => error.kind() == ErrorKind::Lost,
    }
}

fn unknown_release(name: &LockName) -> Error {
    Error::new(
        ErrorKind::Indeterminate,
        format!(
            "it is unknown whether the release of `{name}` took effect; it is asked again until the TTL ends"
        ),
    )
}

async fn renew<L: Lease>(lease: &mut L) -> Event {
    match clock::within(attempt_limit(lease), lease.renew()).await {
        Ok(Ok(())) => Event::Renewed,
        Ok(Err(error)) if error.kind() == ErrorKind::Lost => Event::Lost(Cause::Refused),
        Ok(Err(error)) => Event::Failed(error),
        Err(elapsed) => Event::Failed(
            Error::new(ErrorKind::Indeterminate, "a renewal had no answer in time")
                .with_source(elapsed),
        ),
    }
}

/// When a provisional lease is renewed to its whole TTL: what is given back sooner never needed it.
const SETTLED_AFTER: Duration = Duration::from_millis(20);

/// The longest pause between failed tries, so that a long lease is not left alone for hours.
const BACKOFF_MAX: Duration = Duration::from_secs(5);

/// Pauses between failed tries: from a thirtieth of the TTL, doubling to a sixth, with jitter, and never longer than
/// [`BACKOFF_MAX`].
#[derive(Debug, Default)]
struct Backoff {
    failures: u32,
}

impl Backoff {
    fn next(&mut self, ttl: Duration) -> Duration {
        let pause =
            (ttl / 30 * 2_u32.saturating_pow(self.failures.min(8))).min(ttl / 6).min(BACKOFF_MAX);
        self.failures = self.failures.saturating_add(1);
        rng::jitter(pause)
    }
}

#[cfg(test)]
mod tests;
