//! Redis as a backend.

use std::{sync::Arc, time::Duration};

use redis::{Cmd, Value};

use super::{
    answer::{self, Answer},
    config::{Builder, Config, Servers},
    dial::Dial,
    ear::ear,
    error::RedisError,
    format::{self, Format, Keys},
    lease::RedisLease,
    link::{Greeting, Inspects, Link},
    replicas::Replicas,
    script::{self, Script},
};
use crate::{
    HolderInfo, LockName, OwnerId, Result, Ttl,
    clock::Instant,
    line::{Place, Waiters, Yours},
    rng,
    spi::{Acquired, Backend, Break, Inspect, Refusal, Request, not_held},
};

/// How long a lock that was handed over is the waiter's before it has said that it is there.
pub(in crate::backend) const PROVISIONAL: Duration = Duration::from_secs(2);
/// After how long a waiter asks again though it has heard nothing.
pub const TICK: Duration = Duration::from_secs(10);
/// How long a waiter keeps its place without a sign of life.
pub(in crate::backend) const PLACE: Duration = Duration::from_secs(30);
/// The same as [`TICK`] for the first in line of a foreign format, where nobody tells of a release.
pub(in crate::backend) const POLL: Duration = Duration::from_millis(50);

/// A renewal is given a sixth of its TTL, and this at least: after two without an answer there is time for a third, on a
/// new connection.
const RENEWAL_LIMIT_MIN: Duration = Duration::from_millis(100);

/// Locks on one logical Redis server. Clones share one connection.
#[derive(Clone, Debug)]
pub struct Redis {
    inner: Arc<Inner>,
}

/// What all leases and waiters of a store share.
#[derive(Debug)]
pub(super) struct Inner {
    /// The server as messages name it.
    place: String,
    link: Arc<Link>,
    replicas: Option<Replicas>,
    waiters: Arc<Waiters>,
    channel: String,
    format: Format,
    space: String,
    flags: String,
    is_cluster: bool,
}

impl Inner {
    fn new(config: &Config) -> Result<Self, RedisError> {
        let dial = Dial::new(config)?;
        let waiters = Arc::new(Waiters::default());
        let channel = format!("{}:waiter:{}", config.space, OwnerId::random().to_hex());
        let place = place(&config.servers);
        let is_named = matches!(config.servers, Servers::One(_) | Servers::Socket(_));
        let greeting = Greeting {
            hears: Some((ear(&waiters), channel.clone())),
            inspects: Some(inspects(place.clone(), is_named)),
            asks_settings: false,
            loads: None,
        };
        let replicas =
            (config.replicas > 0).then(|| Replicas::new(&dial, config.replicas, config.call_limit));
        Ok(Self {
            place,
            is_cluster: dial.is_cluster(),
            flags: flags(config, dial.is_cluster()),
            link: Link::new(dial, greeting, config.call_limit),
            replicas,
            waiters,
            channel,
            format: config.format,
            space: config.space.clone(),
        })
    }

    pub(super) fn keys(&self, name: &LockName) -> Result<Keys> {
        if self.is_cluster && self.format.is_foreign() && format::has_braces(name) {
            return Err(RedisError::Braces(name.clone()).at(&self.place));
        }
        Ok(Keys::of(self.format, &self.space, name))
    }

    /// What every script is given first.
    fn call(&self, script: &Script, keys: &Keys, owner: &[u8]) -> Cmd {
        let mut call = script.call(&keys.all());
        call.arg(owner).arg(millis(PROVISIONAL)).arg(&self.flags);
        call
    }

    fn call_of(&self, script: &Script, keys: &Keys, owner: OwnerId) -> Cmd {
        self.call(script, keys, &self.format.owner(owner))
    }

    async fn run(&self, script: &Script, call: &Cmd) -> Result<Value> {
        self.link.run(script, call).await.map_err(|error| error.at(&self.place))
    }

    /// One request for the lock. One that waits stands in the line afterwards, unless it is granted.
    async fn ask(
        &self,
        keys: &Keys,
        request: &Request,
        (asked, waits): (Instant, bool),
    ) -> Result<Answer> {
        let mut call = self.call_of(&script::ACQUIRE, keys, request.owner());
        call.arg(millis(request.ttl().get()))
            .arg(format::details(request.identity()))
            .arg(if waits { self.channel.as_str() } else { "" })
            .arg(millis(PLACE))
            .arg(millis(rng::jitter(TICK)))
            .arg(millis(rng::jitter(POLL)))
            .arg(asked.as_nanos());
        let answer = match &self.replicas {
            Some(replicas) => replicas.run(&script::ACQUIRE, &call, answer::is_grant).await,
            None => self.link.run(&script::ACQUIRE, &call).await,
        };
        answer.and_then(answer::of_acquire).map_err(|error| error.at(&self.place))
    }

    pub(super) async fn renew(&self, keys: &Keys, owner: OwnerId, ttl: Ttl) -> Result<bool> {
        let mut call = self.call_of(&script::RENEW, keys, owner);
        call.arg(millis(ttl.get()));
        let limit = (ttl.get() / 6).max(RENEWAL_LIMIT_MIN).min(self.link.limit());
        let answer = self.link.run_within(limit, &script::RENEW, &call).await;
        answer.and_then(|answer| answer::yes(&answer)).map_err(|error| error.at(&self.place))
    }

    /// Takes back what the owner holds or waits for. False: it did not hold the lock.
    pub(super) async fn release(&self, keys: &Keys, owner: OwnerId) -> Result<bool> {
        let call = self.call_of(&script::RELEASE, keys, owner);
        answer::yes(&self.run(&script::RELEASE, &call).await?)
            .map_err(|error| error.at(&self.place))
    }

    /// The same after an outcome that is unknown, in one step: from a server that hangs nobody hears that it does not know
    /// the script.
    async fn take_back(&self, keys: &Keys, owner: OwnerId) -> Result<bool> {
        let call = script::RELEASE.with_text(&self.call_of(&script::RELEASE, keys, owner));
        let answer = self.link.ask(&call).await;
        answer.and_then(|answer| answer::yes(&answer)).map_err(|error| error.at(&self.place))
    }

    async fn holder(&self, name: &LockName) -> Result<Option<HolderInfo>> {
        let call = self.call(&script::HOLDER, &self.keys(name)?, b"");
        self.seen(name, self.run(&script::HOLDER, &call).await?)
    }

    fn seen(&self, name: &LockName, answer: Value) -> Result<Option<HolderInfo>> {
        let seen = answer::of_look(answer).map_err(|error| error.at(&self.place))?;
        Ok(seen.and_then(|seen| format::holder(self.format, name, &seen)))
    }
}

impl Redis {
    /// Connects to the server that a URL names.
    ///
    /// * `redis://[user:password@]host[:port][/database]`, `rediss://...` with TLS;
    /// * `redis+unix:///path/to/socket`;
    /// * `redis+sentinel://[user:password@]host:port,host:port/MASTER[/database]`;
    /// * `redis+cluster://[user:password@]host:port,host:port`;
    ///
    /// each with options behind a question mark, which [`Redis::builder`] has too: `prefix`, `format`, `overtake=yes`,
    /// `replicas`, `call_limit_ms`; with TLS `ca`, `cert`, `key`; for Sentinel `sentinel_user`, `sentinel_password`. What
    /// has a meaning in a URL is percent-encoded.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) for what will never work: a URL that is wrong, a server that does not
    /// let us in, is no Redis server, or is a replica. [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) when it
    /// cannot be reached now.
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any time.
    pub async fn connect(url: &str) -> Result<Self> {
        Self::builder(url).connect().await
    }

    /// For settings beyond the URL.
    #[must_use]
    pub fn builder(url: &str) -> Builder {
        Builder::new(url)
    }

    pub(super) async fn open(config: Config) -> Result<Self> {
        let inner = Inner::new(&config).map_err(RedisError::plain)?;
        inner.link.connection().await.map_err(|error| error.at_first(&inner.place))?;
        Ok(Self { inner: Arc::new(inner) })
    }

    async fn attempt(
        &self,
        keys: &Keys,
        request: &Request,
        waits: bool,
    ) -> Result<Result<RedisLease, answer::Refusal>> {
        let asked = Instant::now();
        Ok(match self.inner.ask(keys, request, (asked, waits)).await? {
            Answer::Refused(refusal) => Err(refusal),
            Answer::Granted => Ok(self.lease(request, asked, request.ttl())),
        })
    }

    fn lease(&self, request: &Request, counted_from: Instant, ttl: Ttl) -> RedisLease {
        RedisLease {
            store: Arc::clone(&self.inner),
            name: request.name().clone(),
            owner: request.owner(),
            ttl,
            whole_ttl: request.ttl(),
            counted_from,
        }
    }

    /// Stands in the store's line until granted, or until nobody waits any more.
    async fn wait_in_line(&self, keys: &Keys, request: &Request) -> Result<Acquired<RedisLease>> {
        let mut place = None;
        loop {
            let refusal = match self.attempt(keys, request, true).await? {
                Ok(lease) => return Ok(Acquired::Granted(lease)),
                Err(refusal) => refusal,
            };
            let place = place.get_or_insert_with(|| {
                self.inner.waiters.enter(self.inner.format.owner(request.owner()))
            });
            place.ask_again_in(refusal.ask_again_in);
            match news(request, place).await {
                // A grant that replicas have to have is asked for once more.
                Some(Some(yours)) if self.inner.replicas.is_none() => {
                    let ttl = Ttl::try_from(yours.ttl).unwrap_or(request.ttl());
                    return Ok(Acquired::Granted(self.lease(request, yours.asked, ttl)));
                }
                Some(_) => place.listen(),
                None => {
                    self.leave(keys, request).await;
                    return Ok(self.refused(request, &refusal));
                }
            }
        }
    }

    /// What cannot be taken back now ends by itself: a place by its lease, a lock that has just been handed over by its
    /// short expiry.
    async fn leave(&self, keys: &Keys, request: &Request) {
        if let Err(error) = self.inner.take_back(keys, request.owner()).await {
            tracing::debug!(lock = %request.name(), %error, "could not leave the line");
        }
    }

    fn refused(&self, request: &Request, refusal: &answer::Refusal) -> Acquired<RedisLease> {
        let seen = refusal.seen.as_ref();
        let holder = seen.and_then(|seen| format::holder(self.inner.format, request.name(), seen));
        Acquired::Refused(Refusal::by(holder))
    }
}

/// What was handed over, or nothing: then it is time to ask again. `None` when nobody waits any more.
async fn news(request: &Request, place: &mut Place) -> Option<Option<Yours>> {
    tokio::select! {
        news = request.wait().bound(place.due()) => news,
        () = request.cancelled() => None,
    }
}

impl Backend for Redis {
    type Lease = RedisLease;

    fn kind(&self) -> &'static str {
        "redis"
    }

    async fn acquire(&self, request: &Request) -> Result<Acquired<RedisLease>> {
        let keys = self.inner.keys(request.name())?;
        if !request.wait().is_over() && !request.is_cancelled() {
            // Boxed: what does not wait does not carry its memory.
            return Box::pin(self.wait_in_line(&keys, request)).await;
        }
        Ok(match self.attempt(&keys, request, false).await? {
            Ok(lease) => Acquired::Granted(lease),
            Err(refusal) => self.refused(request, &refusal),
        })
    }

    async fn give_back(&self, name: &LockName, owner: OwnerId) -> Result<()> {
        match self.inner.take_back(&self.inner.keys(name)?, owner).await? {
            true => Ok(()),
            false => Err(not_held(name)),
        }
    }

    async fn resume(&self, name: &LockName, owner: OwnerId, ttl: Ttl) -> Result<RedisLease> {
        let counted_from = Instant::now();
        match self.inner.renew(&self.inner.keys(name)?, owner, ttl).await? {
            false => Err(not_held(name)),
            true => {
                let (store, name) = (Arc::clone(&self.inner), name.clone());
                Ok(RedisLease { store, name, owner, ttl, whole_ttl: ttl, counted_from })
            }
        }
    }
}

impl Inspect for Redis {
    /// Walks through all keys of the database: a store of locks alone is quick to list.
    async fn list(&self, after: Option<&LockName>, limit: usize) -> Result<Vec<HolderInfo>> {
        let Inner { link, format, space, place, .. } = &*self.inner;
        let pattern = format::pattern(*format, space);
        let keys = super::scan::keys(link, &pattern).await.map_err(|error| error.at(place))?;
        let mut names: Vec<_> =
            keys.iter().filter_map(|key| format::name_of(*format, space, key)).collect();
        names.sort();
        names.dedup();
        let mut holders = Vec::new();
        for name in names.iter().filter(|name| after.is_none_or(|after| *name > after)) {
            if holders.len() >= limit {
                break;
            }
            holders.extend(self.inner.holder(name).await?);
        }
        Ok(holders)
    }

    async fn holder(&self, name: &LockName) -> Result<Option<HolderInfo>> {
        self.inner.holder(name).await
    }

    async fn break_lock(&self, name: &LockName, when: Break) -> Result<Option<HolderInfo>> {
        let when = match when {
            Break::AtExpiry => "at expiry",
            Break::Now => "now",
        };
        let mut call = self.inner.call(&script::BREAK, &self.inner.keys(name)?, b"");
        call.arg(self.inner.format.owner_len()).arg(when);
        self.inner.seen(name, self.inner.run(&script::BREAK, &call).await?)
    }

    /// There is never anything to remove: all that a lock leaves has an expiry.
    async fn prune(&self) -> Result<u64> {
        Ok(0)
    }
}

/// A server that may forget a lock is worth a word; one that was named, and is a replica, is a mistake.
fn inspects(place: String, is_named: bool) -> Inspects {
    Arc::new(move |info| {
        if let Some(policy) = info.evicts() {
            tracing::warn!(place, policy, "the server may evict locks when its memory is full");
        }
        if is_named && info.is_replica() { Err(RedisError::Replica) } else { Ok(()) }
    })
}

/// What `lua/line.lua` reads.
fn flags(config: &Config, is_cluster: bool) -> String {
    let flags = [('f', config.format.is_foreign()), ('o', config.overtakes), ('c', is_cluster)];
    flags.into_iter().filter_map(|(flag, is_set)| is_set.then_some(flag)).collect()
}

/// Without the login.
pub(in crate::backend) fn place(servers: &Servers) -> String {
    let join = |addresses: &[(String, u16)]| {
        addresses.iter().map(|(host, port)| format!("{host}:{port}")).collect::<Vec<_>>().join(",")
    };
    match servers {
        Servers::One((host, port)) => format!("{host}:{port}"),
        Servers::Socket(path) => path.display().to_string(),
        Servers::Sentinels { addresses, master, .. } => {
            format!("{master} by Sentinel {}", join(addresses))
        }
        Servers::Cluster(addresses) => format!("cluster {}", join(addresses)),
    }
}

pub(in crate::backend) fn millis(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}
