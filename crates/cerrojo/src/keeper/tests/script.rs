//! A store that answers as it is told, in time that only moves when everyone waits.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use tokio::{sync::oneshot, task::JoinHandle};
use tokio_util::sync::CancellationToken;

use super::super::{Errand, Shared, Start, serve};
use crate::{
    ApproximateGuard, Error, ErrorKind, HolderInfo, LockName, NoToken, Options, OwnerId, Result,
    Ttl,
    clock::{self, Instant},
    queue::Turn,
    spi::{Acquired, Backend, Break, Inspect, Lease, Refusal, Request, Wait},
};

/// How a call is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Works,
    /// With an error of this kind; `Contended` stands for a refusal.
    Fails(ErrorKind),
    Hangs,
    /// It works, but only after a time.
    WorksAfter(Duration),
    /// A grant whose TTL the store began that long ago.
    WorksSince(Duration),
}

pub(super) use Answer::{Fails, Hangs, Works, WorksAfter, WorksSince};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Call {
    Acquire,
    GiveBack,
    Resume,
    Renew,
    Release,
}

#[derive(Debug, Default)]
struct Lines {
    planned: Vec<(Call, VecDeque<Answer>)>,
    calls: Vec<(Call, OwnerId, Instant)>,
}

/// What is answered, and what was asked.
#[derive(Clone, Debug)]
pub(super) struct Script {
    lines: Arc<Mutex<Lines>>,
    pub(super) ttl: Ttl,
    /// The TTL until the first renewal, where that is another one.
    pub(super) provisional: Option<Ttl>,
    pub(super) session: CancellationToken,
}

impl Script {
    /// A store that grants leases of 30 s and lets everything work.
    pub(super) fn new() -> Self {
        Self {
            lines: Arc::default(),
            ttl: Ttl::default(),
            provisional: None,
            session: CancellationToken::new(),
        }
    }

    /// The same, but a grant is of 2 s until it is renewed.
    pub(super) fn handing_over() -> Self {
        Self { provisional: Ttl::secs(2).ok(), ..Self::new() }
    }

    /// The next calls are answered like this, and those after them as the last one.
    pub(super) fn plan(&self, call: Call, answers: impl IntoIterator<Item = Answer>) -> &Self {
        let answers = answers.into_iter().collect();
        let mut lines = self.lines();
        lines.planned.retain(|(planned, _)| *planned != call);
        lines.planned.push((call, answers));
        drop(lines);
        self
    }

    pub(super) fn times_of(&self, call: Call) -> Vec<Instant> {
        self.lines().calls.iter().filter(|made| made.0 == call).map(|made| made.2).collect()
    }

    pub(super) fn count(&self, call: Call) -> usize {
        self.times_of(call).len()
    }

    pub(super) fn owners_of(&self, call: Call) -> Vec<OwnerId> {
        self.lines().calls.iter().filter(|made| made.0 == call).map(|made| made.1).collect()
    }

    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap()
    }

    fn next(&self, call: Call, owner: OwnerId) -> Answer {
        let mut lines = self.lines();
        lines.calls.push((call, owner, Instant::now()));
        let answers = lines.planned.iter_mut().find(|(planned, _)| *planned == call);
        answers.map_or(Works, |(_, left)| {
            let last = left.len() == 1;
            if last { left[0] } else { left.pop_front().unwrap_or(Works) }
        })
    }

    /// From when the answer counts.
    async fn answer(&self, call: Call, owner: OwnerId) -> Result<Instant> {
        let start = Instant::now();
        match self.next(call, owner) {
            Works => Ok(start),
            Fails(kind) => Err(Error::new(kind, "as the script says")),
            Hangs => std::future::pending().await,
            WorksAfter(length) => {
                clock::sleep(length).await;
                Ok(start)
            }
            WorksSince(length) => Ok(start - length),
        }
    }

    /// Starts a keeper; the answer to the one who asks.
    pub(super) fn serve(&self, wait: Wait, turn: Option<Turn>) -> (JoinHandle<()>, Reply) {
        let shared =
            Arc::new(Shared { backend: Scripted(self.clone()), options: Options::default() });
        let request = Request::new(name(), self.ttl).with_wait(wait);
        let (reply, answer) = oneshot::channel();
        (
            tokio::spawn(serve(Errand { start: Start::Acquire, shared, request, turn, reply })),
            answer,
        )
    }

    /// A guard, and its keeper.
    pub(super) async fn hold(&self) -> (ApproximateGuard, JoinHandle<()>) {
        let (keeper, answer) = self.serve(Wait::No, None);
        (answer.await.unwrap().unwrap(), keeper)
    }
}

pub(super) type Reply = oneshot::Receiver<Result<ApproximateGuard>>;

pub(super) fn name() -> LockName {
    "job".parse().unwrap()
}

pub(super) fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

pub(super) fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// What timers may be late by, in paused time.
pub(super) const TIMER: Duration = Duration::from_millis(3);

/// How long a lease of 30 s is valid: less 1 % and 2 ms.
pub(super) const VALIDITY: Duration = Duration::from_millis(30_000 - 300 - 2);

#[derive(Debug)]
pub(super) struct Scripted(pub(super) Script);

#[derive(Debug)]
pub(super) struct ScriptedLease {
    pub(super) script: Script,
    pub(super) owner: OwnerId,
    pub(super) counted_from: Instant,
    pub(super) provisional: Option<Ttl>,
}

impl Backend for Scripted {
    type Lease = ScriptedLease;

    fn kind(&self) -> &'static str {
        "scripted"
    }

    async fn acquire(&self, request: &Request) -> Result<Acquired<ScriptedLease>> {
        let (script, owner) = (self.0.clone(), request.owner());
        let answer = tokio::select! {
            answer = script.answer(Call::Acquire, owner) => answer,
            () = request.cancelled() => return Ok(Acquired::Refused(Refusal::default())),
        };
        match answer {
            Ok(counted_from) => {
                let provisional = script.provisional;
                let lease = ScriptedLease { script, owner, counted_from, provisional };
                Ok(Acquired::Granted(lease))
            }
            Err(error) if error.kind() == ErrorKind::Contended => {
                Ok(Acquired::Refused(Refusal::by(Some(HolderInfo::new(name(), &owner)))))
            }
            Err(error) => Err(error),
        }
    }

    async fn give_back(&self, _: &LockName, owner: OwnerId) -> Result<()> {
        self.0.answer(Call::GiveBack, owner).await.map(drop)
    }

    async fn resume(&self, _: &LockName, owner: OwnerId, _: Ttl) -> Result<ScriptedLease> {
        let counted_from = self.0.answer(Call::Resume, owner).await?;
        Ok(ScriptedLease { script: self.0.clone(), owner, counted_from, provisional: None })
    }
}

impl Inspect for Scripted {
    async fn list(&self, _: Option<&LockName>, _: usize) -> Result<Vec<HolderInfo>> {
        Ok(Vec::new())
    }

    async fn holder(&self, _: &LockName) -> Result<Option<HolderInfo>> {
        Ok(None)
    }

    async fn break_lock(&self, _: &LockName, _: Break) -> Result<Option<HolderInfo>> {
        Ok(None)
    }

    async fn prune(&self) -> Result<u64> {
        Ok(0)
    }
}

impl Lease for ScriptedLease {
    type Token = NoToken;

    fn owner(&self) -> OwnerId {
        self.owner
    }

    fn grant(&self) {}

    fn counted_from(&self) -> Instant {
        self.counted_from
    }

    fn ttl(&self) -> Ttl {
        self.provisional.unwrap_or(self.script.ttl)
    }

    fn is_provisional(&self) -> bool {
        self.provisional.is_some()
    }

    async fn renew(&mut self) -> Result<()> {
        self.counted_from = self.script.answer(Call::Renew, self.owner).await?;
        self.provisional = None;
        Ok(())
    }

    async fn release(&mut self) -> Result<()> {
        self.script.answer(Call::Release, self.owner).await.map(drop)
    }

    async fn ended(&mut self) {
        self.script.session.cancelled().await;
    }
}
