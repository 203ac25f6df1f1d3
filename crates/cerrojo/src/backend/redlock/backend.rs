//! A majority of independent Redis servers as a backend.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use redis::Cmd;

use super::{
    super::redis::{
        Format,
        backend::{PLACE, POLL, PROVISIONAL, TICK, millis, place},
        config::Config,
        dial::Dial,
        ear::ear,
        error::RedisError,
        format::{self, Keys},
        link::{Greeting, Link},
        script::{self as single, Script},
    },
    ballot::{Asked, Late, Nodes, Poll, Tally, hear_out, until_decided, until_decided_and_longer},
    config::{Builder, Settings},
    lease::RedlockLease,
    node::{Ask, Node},
    quarantine::Register,
    script,
    summary::{Status, Summary},
};
use crate::{
    Drift, Error, ErrorKind, LockName, OwnerId, Result, Ttl,
    clock::Instant,
    holder::Identity,
    line::{Place, Waiters},
    rng,
    spi::{Acquired, Backend, Refusal, Request, not_held},
};

/// How long a round that nobody won waits before the next, at first and at most.
const RETRY: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(250));
/// How soon who waits for a node's grace looks whether another one is back.
const BACK: Duration = Duration::from_secs(1);
/// How many owners are remembered for whom a release was sent.
const SPENT_MAX: usize = 1_024;

/// Locks on a majority of independent Redis servers. Clones share one connection for each.
#[derive(Clone, Debug)]
pub struct Redlock {
    pub(super) inner: Arc<Inner>,
}

/// What all leases and waiters of a store share.
#[derive(Debug)]
pub(super) struct Inner {
    pub(super) nodes: Vec<Node>,
    waiters: Arc<Waiters>,
    channel: String,
    pub(super) format: Format,
    pub(super) space: String,
    settings: Settings,
    pub(super) call_limit: Duration,
    /// Request owners for whom a release was sent, the latest first.
    spent: Mutex<VecDeque<OwnerId>>,
}

/// One wait: all its rounds have the same place in the nodes' lines.
struct Waiting {
    /// None: it does not wait.
    id: Option<Vec<u8>>,
    place: Option<Place>,
    failed_rounds: u32,
}

/// Who wants or has which lock, and for how long.
#[derive(Clone, Copy)]
pub(super) struct Claim<'a> {
    pub(super) name: &'a LockName,
    pub(super) owner: OwnerId,
    pub(super) ttl: Ttl,
    pub(super) identity: &'a Identity,
}

/// A round that was no grant.
struct Failed {
    tally: Tally,
    late: Late,
    took: Duration,
}

/// What is to be taken back, and behind what.
#[derive(Clone, Copy)]
pub(super) struct GivenBack<'a> {
    pub(super) name: &'a LockName,
    pub(super) owner: OwnerId,
    pub(super) ttl: Ttl,
    pub(super) then: Then<'a>,
    pub(super) late: &'a Late,
}

/// What becomes of a place and of the others when something is taken back.
#[derive(Clone, Copy)]
pub(super) enum Then<'a> {
    /// The asker tries again, from its place.
    Hush,
    /// The place is left, if there is one, and the first waiter called.
    Call(Option<&'a [u8]>),
}

impl Inner {
    fn new(configs: &[Config], settings: Settings) -> Result<Self, RedisError> {
        let first = configs.first().ok_or_else(|| RedisError::Config("no nodes".to_owned()))?;
        let waiters = Arc::new(Waiters::default());
        let channel = format!("{}:waiter:{}", first.space, OwnerId::random().to_hex());
        let places: Vec<_> = configs.iter().map(|config| place(&config.servers)).collect();
        let register = Register::new(settings.restart_grace(), places.clone());
        let node = |(number, (config, place)): (usize, (&Config, String))| {
            let greeting = Greeting {
                hears: Some((ear(&waiters), channel.clone())),
                inspects: Some(register.inspects(number)),
                asks_settings: true,
                loads: Some(&script::RELEASE),
            };
            let link = Link::new(Dial::new(config)?, greeting, config.call_limit);
            Ok(Node::new(place, link, number, &register))
        };
        let nodes: Result<_, RedisError> =
            configs.iter().zip(places).enumerate().map(node).collect();
        Ok(Self {
            nodes: nodes?,
            waiters,
            channel,
            format: first.format,
            space: first.space.clone(),
            call_limit: first.call_limit,
            settings,
            spent: Mutex::default(),
        })
    }

    pub(super) fn count(&self) -> Nodes {
        Nodes(self.nodes.len())
    }

    /// What every script is given first.
    pub(super) fn call(&self, script: &Script, name: &LockName, owner: &[u8]) -> Cmd {
        let mut call = script.call(&Keys::of(self.format, &self.space, name).all());
        call.arg(owner).arg(millis(PROVISIONAL)).arg("f");
        call
    }

    /// Asks for votes; with a place it waits.
    fn ask_for(&self, claim: &Claim<'_>, place: Option<&[u8]>) -> Arc<Ask> {
        let details = match self.format {
            Format::Cerrojo => format::details(claim.identity),
            _ => Vec::new(),
        };
        let owner = self.format.owner(claim.owner);
        let ttl_ms = millis(claim.ttl.get());
        let mut script = self.call(&script::ACQUIRE, claim.name, &owner);
        script
            .arg(ttl_ms)
            .arg(&details)
            .arg(place.unwrap_or_default())
            .arg(if place.is_some() { self.channel.as_str() } else { "" })
            .arg(millis(PLACE));
        let key = Keys::of(self.format, &self.space, claim.name).into_lock();
        Arc::new(Ask { key, owner, details, ttl_ms, script })
    }

    fn call_to_release(&self, name: &LockName, owner: OwnerId, then: Then<'_>) -> Cmd {
        let mut call = self.call(&script::RELEASE, name, &self.format.owner(owner));
        match then {
            Then::Hush => call.arg("").arg("hush"),
            Then::Call(place) => call.arg(place.unwrap_or_default()).arg("call"),
        };
        call
    }

    /// How long a node is given.
    fn limit(&self, ttl: Ttl) -> Duration {
        self.settings.node_limit(ttl).min(self.call_limit)
    }

    /// Asks all nodes at once.
    pub(super) fn ask_all<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
        &self,
        ask: impl Fn(Node) -> F,
    ) -> Asked<T> {
        self.ask_some(0..self.nodes.len(), ask)
    }

    fn ask_some<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
        &self,
        numbers: impl IntoIterator<Item = usize>,
        ask: impl Fn(Node) -> F,
    ) -> Asked<T> {
        let nodes =
            numbers.into_iter().filter_map(|number| Some((number, self.nodes.get(number)?)));
        let asked = nodes.map(|(number, node)| {
            let answer = ask(node.clone());
            Box::pin(async move { (number, answer.await) }) as _
        });
        asked.collect()
    }

    /// What the majority says; nothing when too many do not say.
    async fn poll(&self, mut asked: Asked<Result<bool, RedisError>>) -> Poll {
        let mut poll = Poll::new(self.count());
        until_decided(&mut asked, |number, answer| poll.count(number, answer)).await;
        hear_out(asked);
        poll
    }

    fn answer(&self, what: &str, name: &LockName, poll: &Poll) -> Result<bool> {
        poll.answer().ok_or_else(|| {
            let why = poll.failures.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
            let message =
                format!("redlock: no majority of the nodes answered to {what} `{name}`: {why}");
            Error::new(ErrorKind::Indeterminate, message)
        })
    }

    fn ask_to_release(
        &self,
        numbers: impl IntoIterator<Item = usize>,
        given_back: GivenBack<'_>,
    ) -> Asked<Result<bool, RedisError>> {
        let GivenBack { name, owner, ttl, then, late } = given_back;
        let (limit, call) = (self.limit(ttl), Arc::new(self.call_to_release(name, owner, then)));
        self.ask_some(numbers, |node| {
            let (call, late) = (Arc::clone(&call), late.until_over(node.number));
            async move {
                let given = node.release(limit, &call).await;
                match late {
                    Some(over) if !matches!(given, Ok(true)) => {
                        over.await;
                        node.release(limit, &call).await
                    }
                    _ => given,
                }
            }
        })
    }

    /// Takes back what the owner holds. False: a majority did not know it.
    pub(super) async fn release(&self, given_back: GivenBack<'_>) -> Result<bool> {
        let asked = self.ask_to_release(0..self.nodes.len(), given_back);
        let poll = self.poll(asked).await;
        self.answer("release", given_back.name, &poll)
    }

    /// Sets the TTL anew where the owner has the lock; and where a majority says that it has, gives it back to those who have
    /// lost it. That does not count in this round.
    pub(super) async fn renew(&self, claim: &Claim<'_>) -> Result<bool> {
        let Claim { name, owner, ttl, .. } = *claim;
        let mut call = self.call(&single::RENEW, name, &self.format.owner(owner));
        call.arg(millis(ttl.get()));
        let (limit, call) = (self.limit(ttl), Arc::new(call));
        let mut asked = self.ask_all(|node| {
            let call = Arc::clone(&call);
            async move { node.renew(limit, &call).await }
        });
        let mut poll = Poll::new(self.count());
        // Who has lost the lock is not always among the first.
        let patience = limit.min(ttl.get() / 20);
        until_decided_and_longer(&mut asked, patience, |number, answer| poll.count(number, answer))
            .await;
        hear_out(asked);
        let renewed = self.answer("renew", name, &poll)?;
        if renewed && !poll.no.is_empty() {
            let ask = self.ask_for(claim, None);
            let asked = self.ask_some(poll.no, |node| {
                let ask = Arc::clone(&ask);
                async move { node.put_back(limit, &ask).await }
            });
            // Heard out here: a release that comes later must find it.
            self.poll(asked).await;
        }
        Ok(renewed)
    }

    /// One round of votes. What it has taken is given back unless it is a grant.
    async fn round(
        self: &Arc<Self>,
        request: &Request,
        owner: OwnerId,
        place: Option<&[u8]>,
    ) -> Result<RedlockLease, Failed> {
        let counted_from = Instant::now();
        let (name, ttl, identity) = (request.name(), request.ttl(), request.identity());
        let (limit, ask) =
            (self.limit(ttl), self.ask_for(&Claim { name, owner, ttl, identity }, place));
        let mut asked = self.ask_all(|node| {
            let ask = Arc::clone(&ask);
            async move { node.acquire(limit, &ask).await }
        });
        let mut tally = Tally::new(self.count());
        let node = |number: usize| self.nodes.get(number).map_or("", |node| &node.place);
        until_decided(&mut asked, |number, vote| tally.count(number, node(number), vote)).await;
        let late = Late::of(&tally.voted, asked);
        if tally.has_quorum() && self.is_worth_it(counted_from, ttl) {
            return Ok(RedlockLease {
                store: Arc::clone(self),
                name: name.clone(),
                owner,
                ttl,
                counted_from,
                identity: Arc::clone(identity),
                place: place.map(<[u8]>::to_vec),
                late,
            });
        }
        let took = Instant::now().since(counted_from);
        self.withdraw(request, owner, &late).await;
        Err(Failed { tally, late, took })
    }

    /// Whether enough is left of the validity to be used.
    fn is_worth_it(&self, counted_from: Instant, ttl: Ttl) -> bool {
        let elapsed = Instant::now().since(counted_from);
        let left = ttl.get().saturating_sub(Drift::default().of(ttl)).saturating_sub(elapsed);
        left >= self.settings.validity_min()
    }

    /// Gives back a failed round everywhere: on each node behind the call that it answers, or may still answer.
    ///
    /// Ready when those have it back that voted, so that the next round does not meet this one.
    async fn withdraw(&self, request: &Request, owner: OwnerId, late: &Late) {
        if owner == request.owner() {
            self.note_spent(owner);
        }
        let (name, ttl) = (request.name(), request.ttl());
        let given_back = GivenBack { name, owner, ttl, then: Then::Hush, late };
        let (voters, others): (Vec<_>, Vec<_>) =
            (0..self.nodes.len()).partition(|number| late.has_voted(*number));
        hear_out(self.ask_to_release(others, given_back));
        let mut voters = self.ask_to_release(voters, given_back);
        until_decided(&mut voters, |_, _| false).await;
    }

    /// An owner for whom a release was sent never asks again.
    fn owner_of_round(&self, request: &Request) -> OwnerId {
        let spent = self.spent.lock().unwrap_or_else(PoisonError::into_inner);
        if spent.contains(&request.owner()) { OwnerId::random() } else { request.owner() }
    }

    fn note_spent(&self, owner: OwnerId) {
        let mut spent = self.spent.lock().unwrap_or_else(PoisonError::into_inner);
        spent.truncate(SPENT_MAX - 1);
        spent.push_front(owner);
    }

    fn check(&self, ttl: Ttl) -> Result<()> {
        let (max, drift) = (self.settings.ttl_max, Drift::default().of(ttl));
        let why = if ttl > max {
            format!(
                "a TTL of {ttl:?} is more than `ttl_max` ({max:?}): a node that was restarted would vote too early"
            )
        } else if ttl.get() <= drift + self.settings.validity_min() {
            format!(
                "a TTL of {ttl:?} leaves nothing after drift, clock deviation and the work's time"
            )
        } else {
            return Ok(());
        };
        Err(Error::new(ErrorKind::Invalid, format!("redlock: {why}")))
    }
}

impl Waiting {
    fn of(request: &Request) -> Self {
        let waits = !request.wait().is_over() && !request.is_cancelled();
        let id = waits.then(|| OwnerId::random().to_hex().into_bytes());
        Self { id, place: None, failed_rounds: 0 }
    }

    /// After how long to vote again, unless called earlier; `None`: what is lacking does not come with time.
    fn again_in(&mut self, failed: &Failed, format: Format) -> Option<Duration> {
        let Failed { tally, took, .. } = failed;
        if let Some(from) = tally.quorum_from() {
            let back = if tally.has_errors() { rng::jitter(BACK) } else { Duration::MAX };
            return Some(from.remaining().min(back));
        }
        let free_in = tally.free_in_ms()?;
        if tally.holder(format.owner_len()).is_some() {
            self.failed_rounds = 0;
            // Nobody tells us of another library's release.
            let look = if format.is_foreign() { POLL } else { TICK };
            return Some(Duration::from_millis(free_in + 1).min(rng::jitter(look)));
        }
        // Nobody has a majority: all back off by chance, from about a round trip on, and further each time.
        let pause =
            (*took).clamp(RETRY.0, RETRY.1 / 16) * 2_u32.saturating_pow(self.failed_rounds.min(16));
        self.failed_rounds += 1;
        Some(rng::jitter(pause.min(RETRY.1)))
    }
}

impl Redlock {
    /// Connects to the nodes that a URL names: `redlock://[user:password@]host:port,host:port,...[/database]`, with TLS
    /// `redlocks://`.
    ///
    /// Options behind a question mark: `ttl_max_ms`, `restart_grace_ms`, `clock_deviation_ms`, `operation_time_ms`,
    /// `node_limit_ms`, as in [`Redlock::builder`]; `nodes`, more nodes as URLs of any kind with spaces between them; and
    /// those of a [single server](crate::backend::redis::Redis::connect) for each node: `prefix`, `format`, `call_limit_ms`,
    /// `ca`, `cert`, `key`. What has a meaning in a URL is percent-encoded.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] for what will never work: a wrong URL, no nodes, a node that is a replica, part of a cluster,
    /// or the same server as another. [`ErrorKind::Unavailable`] when no majority can be reached; a minority that is down is
    /// no error.
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any time.
    pub async fn connect(url: &str) -> Result<Self> {
        Builder::of_url(url)?.connect().await
    }

    /// For nodes by their URLs, each as [`Redis::connect`](crate::backend::redis::Redis::connect) takes them, and for settings.
    #[must_use]
    pub fn builder(nodes: impl IntoIterator<Item = impl AsRef<str>>) -> Builder {
        Builder::of_nodes(nodes)
    }

    pub(super) async fn open(configs: Vec<Config>, settings: Settings) -> Result<Self> {
        let inner = Arc::new(Inner::new(&configs, settings).map_err(RedisError::plain)?);
        inner.greet().await?;
        Ok(Self { inner })
    }

    /// Rounds until one is granted, or until nobody waits any more.
    async fn rounds(&self, request: &Request) -> Result<Acquired<RedlockLease>> {
        let (inner, mut waiting) = (&self.inner, Waiting::of(request));
        let mut owner = inner.owner_of_round(request);
        loop {
            let failed = match inner.round(request, owner, waiting.id.as_deref()).await {
                Ok(lease) => return Ok(Acquired::Granted(lease)),
                Err(failed) => failed,
            };
            let again_in = waiting.again_in(&failed, inner.format);
            if !self.is_due(request, &mut waiting, again_in).await {
                self.leave(request, owner, &waiting, &failed.late).await;
                return self.refused(request, failed.tally);
            }
            owner = OwnerId::random();
        }
    }

    /// True when it is time for another round, false when there is to be none.
    async fn is_due(
        &self,
        request: &Request,
        waiting: &mut Waiting,
        again_in: Option<Duration>,
    ) -> bool {
        let (Some(id), Some(again_in)) = (&waiting.id, again_in) else {
            return false;
        };
        let place = waiting.place.get_or_insert_with(|| self.inner.waiters.enter(id.clone()));
        place.ask_again_in(again_in);
        let due = tokio::select! {
            due = request.wait().bound(place.due()) => due.is_some(),
            () = request.cancelled() => false,
        };
        place.listen();
        due
    }

    /// What cannot be taken back now ends by itself.
    async fn leave(&self, request: &Request, owner: OwnerId, waiting: &Waiting, late: &Late) {
        let Some(id) = &waiting.id else {
            return;
        };
        let (name, ttl, then) = (request.name(), request.ttl(), Then::Call(Some(id)));
        if let Err(error) = self.inner.release(GivenBack { name, owner, ttl, then, late }).await {
            tracing::debug!(lock = %request.name(), %error, "could not leave the lines");
        }
    }

    fn refused(&self, request: &Request, tally: Tally) -> Result<Acquired<RedlockLease>> {
        let format = self.inner.format;
        let held = tally.holder(format.owner_len());
        let holder = held.and_then(|seen| format::holder(format, request.name(), seen));
        let summary = tally.summary();
        if summary.status == Status::Conflicted {
            return Ok(Acquired::Refused(Refusal::by(holder).because(summary)));
        }
        Err(unavailable(request.name(), summary))
    }
}

fn unavailable(name: &LockName, summary: Summary) -> Error {
    let message = format!("redlock: `{name}` could not be acquired: {summary}");
    Error::new(ErrorKind::Unavailable, message).with_source(summary)
}

impl Backend for Redlock {
    type Lease = RedlockLease;

    fn kind(&self) -> &'static str {
        "redlock"
    }

    async fn acquire(&self, request: &Request) -> Result<Acquired<RedlockLease>> {
        self.inner.check(request.ttl())?;
        self.rounds(request).await
    }

    async fn give_back(&self, name: &LockName, owner: OwnerId) -> Result<()> {
        self.inner.note_spent(owner);
        let (ttl, late) = (self.inner.settings.ttl_max, &Late::default());
        let given_back = GivenBack { name, owner, ttl, then: Then::Call(None), late };
        match self.inner.release(given_back).await? {
            true => Ok(()),
            false => Err(not_held(name)),
        }
    }

    async fn resume(&self, name: &LockName, owner: OwnerId, ttl: Ttl) -> Result<RedlockLease> {
        self.inner.check(ttl)?;
        let (counted_from, identity) = (Instant::now(), Arc::<Identity>::default());
        match self.inner.renew(&Claim { name, owner, ttl, identity: &identity }).await? {
            false => Err(not_held(name)),
            true => {
                let (store, name) = (Arc::clone(&self.inner), name.clone());
                let (place, late) = (None, Late::default());
                Ok(RedlockLease { store, name, owner, ttl, counted_from, identity, place, late })
            }
        }
    }
}
