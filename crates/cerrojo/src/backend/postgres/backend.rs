//! PostgreSQL as a backend.

use std::{num::NonZeroU64, sync::Arc, time::Duration};

use tokio_postgres::config::Host;

use super::{
    answer::{Answer, Held},
    batch::{Ask, What},
    config::{Builder, Config},
    dial::Wire,
    error::PgError,
    lease::PostgresLease,
    listen::Ears,
    worker::Workers,
};
use crate::{
    FencedGrant, HolderInfo, LockName, OwnerId, Result, StoreId, Ttl,
    clock::{self, Instant},
    line::{Waiters, Yours},
    rng,
    spi::{Acquired, Backend, Break, Inspect, Refusal, Request, not_held},
    sql::Names,
};

/// A renewal is given a sixth of its TTL, and this at least: a server that is merely slow does not get another connection to make.
const RENEWAL_LIMIT_MIN: Duration = Duration::from_millis(250);
/// How long a request that does not wait asks again for a name whose row somebody's transaction holds.
const BUSY_PATIENCE: Duration = Duration::from_secs(1);
/// Between two such requests, at first and at most.
const BUSY_PAUSE: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(100));

/// Locks in one PostgreSQL database. Clones share three connections.
#[derive(Clone, Debug)]
pub struct Postgres {
    pub(super) inner: Arc<Inner>,
}

/// What all leases and waiters of a store share.
#[derive(Debug)]
pub(super) struct Inner {
    /// The server and the table as messages name them.
    pub(super) place: String,
    pub(super) names: Names,
    pub(super) workers: Arc<Workers>,
    waiters: Arc<Waiters>,
    ears: Ears,
    pub(super) call_limit: Duration,
}

impl Inner {
    fn new(config: Config) -> Self {
        let waiters = Arc::new(Waiters::default());
        let workers = Arc::new(Workers::new(config.clone()));
        Self {
            place: place(&config),
            ears: Ears::new(&config, Arc::clone(&waiters), &workers),
            names: config.names,
            workers,
            waiters,
            call_limit: config.call_limit,
        }
    }

    async fn ask(&self, name: &LockName, owner: OwnerId, what: What) -> Result<Answer> {
        let ask = Ask { name: name.clone(), owner, what };
        self.workers.ask(ask, self.call_limit).await.map_err(|error| error.at(&self.place))
    }

    /// Asks until the row is nobody's, within `limit`. The last time, too, there is time for an answer: past its limit a request's connection
    /// is given up, and others' requests with it.
    async fn ask_until_free(
        &self,
        ask: Ask,
        limit: Duration,
    ) -> std::result::Result<Answer, PgError> {
        let end = Instant::now() + limit;
        let mut pause = Pause::default();
        loop {
            match self.workers.ask(ask.clone(), end.remaining()).await? {
                Answer::Busy => pause.next().await,
                answer => return Ok(answer),
            }
            if end.remaining() < limit / 4 {
                return Err(PgError::Busy(ask.name.as_str().to_owned()));
            }
        }
    }

    /// What a renewal is given: after two without an answer there is time for a third, on a new connection.
    pub(super) fn renewal_limit(&self, ttl: Ttl) -> Duration {
        (ttl.get() / 6).max(RENEWAL_LIMIT_MIN).min(self.call_limit)
    }

    /// The grant's number and from when the TTL counts; none: it is not this owner's.
    pub(super) async fn renew(
        &self,
        name: &LockName,
        owner: OwnerId,
        ttl: Ttl,
        limit: Duration,
    ) -> Result<Option<(NonZeroU64, Instant)>> {
        let ask = Ask { name: name.clone(), owner, what: What::Renew { ttl } };
        let counted_from = Instant::now();
        match self.ask_until_free(ask, limit).await.map_err(|error| error.at(&self.place))? {
            Answer::Granted(number) => Ok(Some((number, counted_from))),
            _ => Ok(None),
        }
    }

    /// Takes back what the owner holds or waits for. False: it did not hold the lock.
    pub(super) async fn release(&self, name: &LockName, owner: OwnerId) -> Result<bool> {
        let ask = Ask { name: name.clone(), owner, what: What::Release };
        let answer = self.ask_until_free(ask, self.call_limit).await;
        answer
            .map(|answer| matches!(answer, Answer::Released))
            .map_err(|error| error.at(&self.place))
    }

    pub(super) fn store(&self) -> Result<StoreId> {
        self.workers.store().ok_or_else(|| PgError::Closed.at(&self.place))
    }
}

/// Between requests for a name that is busy.
pub(super) struct Pause(Duration);

impl Default for Pause {
    fn default() -> Self {
        Self(BUSY_PAUSE.0)
    }
}

impl Pause {
    pub(super) async fn next(&mut self) {
        clock::sleep(rng::jitter(self.0)).await;
        self.0 = (self.0 * 2).min(BUSY_PAUSE.1);
    }
}

impl Postgres {
    /// Connects to the store that a URL names.
    ///
    /// `postgres://[user[:password]@][host[:port]][/database][?option=value&...]`, or keywords and values
    /// (`host=db user=app dbname=app`), as libpq reads them; several hosts are asked for the one that takes writes. Beside the driver's
    /// options there are `sslmode` with the meanings of libpq, `sslrootcert`, `sslcert`, `sslkey`, `passfile`, and
    /// those of [`Postgres::builder`]: `schema`, `table`, `listen` (`yes`, `no` or `host:port`), `call_limit_ms`.
    ///
    /// The tables have to be there: [`Builder::init`] makes them.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) for what will never work: a URL that is wrong, a server that does not let us in, a
    /// database without the tables or with newer ones, a standby. [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) when it cannot be
    /// reached now.
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any time.
    pub async fn connect(url: &str) -> Result<Self> {
        Self::builder(url).connect().await
    }

    /// For settings beyond the URL, and to make the tables.
    #[must_use]
    pub fn builder(url: &str) -> Builder {
        Builder::new(url)
    }

    pub(super) async fn open(config: Config) -> Result<Self> {
        let inner = Inner::new(config);
        inner.workers.connect().await.map_err(|error| error.at_first(&inner.place))?;
        Ok(Self { inner: Arc::new(inner) })
    }

    async fn attempt(
        &self,
        request: &Request,
        channel: Option<String>,
    ) -> Result<(Instant, Answer)> {
        let asked = Instant::now();
        let (ttl, identity) = (request.ttl(), Arc::clone(request.identity()));
        let what = What::Acquire { ttl, identity, channel, asked };
        Ok((asked, self.inner.ask(request.name(), request.owner(), what).await?))
    }

    fn lease(
        &self,
        request: &Request,
        number: NonZeroU64,
        (counted_from, ttl): (Instant, Ttl),
    ) -> Result<PostgresLease> {
        Ok(PostgresLease {
            grant: FencedGrant { number, store: self.inner.store()? },
            store: Arc::clone(&self.inner),
            name: request.name().clone(),
            owner: request.owner(),
            ttl,
            whole_ttl: request.ttl(),
            counted_from,
        })
    }

    fn granted(
        &self,
        request: &Request,
        number: NonZeroU64,
        asked: Instant,
    ) -> Result<Acquired<PostgresLease>> {
        self.lease(request, number, (asked, request.ttl())).map(Acquired::Granted)
    }

    async fn try_once(&self, request: &Request) -> Result<Acquired<PostgresLease>> {
        let end = Instant::now() + BUSY_PATIENCE;
        let mut pause = Pause::default();
        loop {
            match self.attempt(request, None).await? {
                (asked, Answer::Granted(number)) => return self.granted(request, number, asked),
                (_, Answer::Held(held)) => return Ok(refused(request, &held)),
                _ if Instant::now() >= end => {
                    let busy = PgError::Busy(request.name().as_str().to_owned());
                    return Err(busy.at(&self.inner.place));
                }
                _ => pause.next().await,
            }
        }
    }

    /// Stands in the store's line until granted, or until nobody waits any more.
    async fn wait_in_line(&self, request: &Request) -> Result<Acquired<PostgresLease>> {
        let Inner { waiters, ears, .. } = &*self.inner;
        let mut place = None;
        let mut pause = Pause::default();
        loop {
            let channel = ears.channel();
            let (asked, held) = match self.attempt(request, Some(channel.clone())).await? {
                (asked, Answer::Granted(number)) => return self.granted(request, number, asked),
                (asked, Answer::Held(held)) => (asked, held),
                _ if still_waits(request, pause.next()).await.is_some() => continue,
                _ => return self.busy_to_the_end(request).await,
            };
            pause = Pause::default();
            let place =
                place.get_or_insert_with(|| waiters.enter(request.owner().to_hex().into_bytes()));
            // What has been said since then was not said to us.
            let is_deaf = channel != ears.channel();
            place.ask_again_in(match is_deaf {
                true => Duration::ZERO,
                false => ears.ask_again_in(held.ask_again_in()),
            });
            match still_waits(request, place.due()).await {
                Some(Some(yours)) => match self.handed_over(request, yours, asked)? {
                    Some(lease) => return Ok(Acquired::Granted(lease)),
                    None => place.listen(),
                },
                Some(None) => place.listen(),
                None => {
                    self.leave(request).await;
                    return Ok(refused(request, &held));
                }
            }
        }
    }

    /// None: the news say too little, or come from before the store's latest answer, by which it was not ours any more; the store is asked.
    fn handed_over(
        &self,
        request: &Request,
        yours: Yours,
        asked: Instant,
    ) -> Result<Option<PostgresLease>> {
        if yours.asked < asked {
            return Ok(None);
        }
        let Some(number) = yours.number.and_then(NonZeroU64::new) else {
            return Ok(None);
        };
        let ttl = Ttl::try_from(yours.ttl).unwrap_or(request.ttl());
        self.lease(request, number, (yours.asked, ttl)).map(Some)
    }

    /// Waiting is over, and all that was learned is that somebody's transaction holds the row.
    async fn busy_to_the_end(&self, request: &Request) -> Result<Acquired<PostgresLease>> {
        self.leave(request).await;
        if request.is_cancelled() {
            return Ok(Acquired::Refused(Refusal::default()));
        }
        Err(PgError::Busy(request.name().as_str().to_owned()).at(&self.inner.place))
    }

    /// What cannot be taken back now ends by itself: a place by its lease, a lock that has just been handed over by its
    /// short expiry.
    async fn leave(&self, request: &Request) {
        if let Err(error) = self.inner.release(request.name(), request.owner()).await {
            tracing::debug!(lock = %request.name(), %error, "could not leave the line");
        }
    }
}

fn refused(request: &Request, held: &Held) -> Acquired<PostgresLease> {
    Acquired::Refused(Refusal::by(Some(held.info(request.name().clone()))))
}

/// None when nobody waits any more.
async fn still_waits<T>(request: &Request, news: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        news = request.wait().bound(news) => news,
        () = request.cancelled() => None,
    }
}

/// Makes or upgrades the tables.
pub(super) async fn init(config: &Config, transaction: &str) -> Result<()> {
    let at = |error: PgError| error.at_first(&place(config));
    let mut wire = Wire::dial(config).await.map_err(at)?;
    let end = Instant::now() + config.dial_limit();
    wire.run(end, transaction).await.map_err(|error| at(error.of_init()))?;
    wire.close().await;
    Ok(())
}

impl Backend for Postgres {
    type Lease = PostgresLease;

    fn kind(&self) -> &'static str {
        "postgres"
    }

    async fn acquire(&self, request: &Request) -> Result<Acquired<PostgresLease>> {
        if !request.wait().is_over() && !request.is_cancelled() {
            // Boxed: what does not wait does not carry its memory.
            return Box::pin(self.wait_in_line(request)).await;
        }
        self.try_once(request).await
    }

    async fn give_back(&self, name: &LockName, owner: OwnerId) -> Result<()> {
        match self.inner.release(name, owner).await? {
            true => Ok(()),
            false => Err(not_held(name)),
        }
    }

    async fn resume(&self, name: &LockName, owner: OwnerId, ttl: Ttl) -> Result<PostgresLease> {
        let renewed = self.inner.renew(name, owner, ttl, self.inner.call_limit).await?;
        let Some((number, counted_from)) = renewed else {
            return Err(not_held(name));
        };
        Ok(PostgresLease {
            grant: FencedGrant { number, store: self.inner.store()? },
            store: Arc::clone(&self.inner),
            name: name.clone(),
            owner,
            ttl,
            whole_ttl: ttl,
            counted_from,
        })
    }
}

impl Inspect for Postgres {
    async fn list(&self, after: Option<&LockName>, limit: usize) -> Result<Vec<HolderInfo>> {
        self.inner.holders(after, limit).await.map_err(|error| error.at(&self.inner.place))
    }

    async fn holder(&self, name: &LockName) -> Result<Option<HolderInfo>> {
        self.inner.holder(name).await.map_err(|error| error.at(&self.inner.place))
    }

    async fn break_lock(&self, name: &LockName, when: Break) -> Result<Option<HolderInfo>> {
        let broken = self.inner.break_until_free(name, when).await;
        broken.map_err(|error| error.at(&self.inner.place))
    }

    async fn prune(&self) -> Result<u64> {
        self.inner.prune().await.map_err(|error| error.at(&self.inner.place))
    }
}

/// Without the login.
fn place(config: &Config) -> String {
    let server = &config.server;
    let ports = server.get_ports();
    let hosts: Vec<_> = server
        .get_hosts()
        .iter()
        .enumerate()
        .map(|(at, host)| {
            let port = ports.get(at).or(ports.first()).copied().unwrap_or(5432);
            match host {
                Host::Tcp(host) => format!("{host}:{port}"),
                #[cfg(unix)]
                Host::Unix(path) => format!("{}:{port}", path.display()),
            }
        })
        .collect();
    format!("{}, table {}", hosts.join(","), config.names.shown())
}
