//! What all nodes together can tell: at the start, and of any lock.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use redis::Cmd;

use super::{
    super::redis::{
        error::RedisError,
        format::{self, Seen},
        script::{self as single, Script},
    },
    Redlock,
    backend::Inner,
    ballot::{hear_out, until_decided, until_decided_and_longer},
};
use crate::{
    Error, ErrorKind, HolderInfo, LockName, Result,
    clock::Instant,
    spi::{Break, Inspect},
};

/// How much longer than for a majority a start waits for the others.
const PATIENCE: Duration = Duration::from_millis(100);

/// Nodes whose clocks are certainly further apart are worth a word.
const SKEW_MAX: Duration = Duration::from_millis(10);

/// The difference between a node's clock and ours, in ns: it lies between these two.
type Offset = (i128, i128);

impl Inner {
    /// Looks at every node. One that never can be a node is an error, and so is the lack of a majority.
    pub(super) async fn greet(&self) -> Result<()> {
        let mut asked = self.ask_all(|node| async move { node.time().await });
        let (mut offsets, mut failures) = (Vec::new(), Vec::new());
        let quorum = self.count().quorum();
        let mut has_quorum = |number, answer| {
            match answer {
                Ok(read) => offsets.push((number, offset(read))),
                Err(error) => failures.push((number, error)),
            }
            offsets.len() >= quorum
        };
        // Who is slower than that is looked at before its first vote, as at each connection.
        until_decided_and_longer(&mut asked, PATIENCE, &mut has_quorum).await;
        hear_out(asked);
        self.compare(&offsets);
        let place = |number: usize| self.nodes.get(number).map_or("", |node| &node.place);
        let is_never = |error: &RedisError| error.kind_at_first() == ErrorKind::Invalid;
        let never = failures.iter().position(|(_, error)| is_never(error));
        match never.map(|at| failures.swap_remove(at)) {
            Some((number, error)) => Err(error.at_first(place(number))),
            None if offsets.len() >= self.count().quorum() => Ok(()),
            None => {
                let why = failures.iter().map(|(number, error)| error.message(place(*number)));
                let why = why.collect::<Vec<_>>().join("; ");
                let message = format!("redlock: no majority of the nodes can be reached: {why}");
                Err(Error::new(ErrorKind::Unavailable, message))
            }
        }
    }

    fn compare(&self, offsets: &[(usize, Offset)]) {
        let allowed = i128::try_from(SKEW_MAX.as_nanos()).unwrap_or(i128::MAX);
        let latest = offsets.iter().max_by_key(|(_, (least, _))| *least);
        let earliest = offsets.iter().min_by_key(|(_, (_, most))| *most);
        if let (Some((ahead, (least, _))), Some((behind, (_, most)))) = (latest, earliest)
            && least - most > allowed
        {
            let place = |number: &usize| self.nodes.get(*number).map_or("", |node| &node.place);
            let apart_ms = (least - most) / 1_000_000;
            let (ahead, behind) = (place(ahead), place(behind));
            tracing::warn!(ahead, behind, %apart_ms, "the nodes' clocks differ: see to their NTP");
        }
    }

    /// What the nodes say of a lock, from as many as a majority needs.
    async fn look(
        &self,
        name: &LockName,
        script: &'static Script,
        call: Cmd,
    ) -> Result<Option<HolderInfo>> {
        let (limit, call) = (self.call_limit, Arc::new(call));
        let mut asked = self.ask_all(|node| {
            let call = Arc::clone(&call);
            async move { node.look(limit, script, &call).await }
        });
        let (mut seen, mut free, mut failures) = (Vec::new(), 0, Vec::new());
        until_decided(&mut asked, |_, answer| {
            match answer {
                Ok(Some(one)) => seen.push(one),
                Ok(None) => free += 1,
                Err(error) => failures.push(error),
            }
            false
        })
        .await;
        if seen.len() + free < self.count().quorum() {
            return Err(unanswered(&failures));
        }
        Ok(self.holder_of(name, seen))
    }

    /// Who has a majority, and until when.
    fn holder_of(&self, name: &LockName, mut seen: Vec<Seen>) -> Option<HolderInfo> {
        let length = self.format.owner_len();
        let owner = |seen: &Seen| seen.value.iter().take(length).copied().collect::<Vec<u8>>();
        let quorum = self.count().quorum();
        let has_majority =
            |one: &Vec<u8>| seen.iter().filter(|other| owner(other) == *one).count() >= quorum;
        let holder = seen.iter().map(owner).find(has_majority)?;
        seen.retain(|one| owner(one) == holder);
        seen.sort_by_key(|one| std::cmp::Reverse(one.pttl));
        format::holder(self.format, name, seen.get(quorum - 1)?)
    }
}

fn offset((time, before, after): (Duration, Instant, Instant)) -> Offset {
    let nanos = |instant: Instant| i128::from(instant.as_nanos());
    let time = i128::try_from(time.as_nanos()).unwrap_or(i128::MAX);
    (time - nanos(after), time - nanos(before))
}

fn unanswered(failures: &[RedisError]) -> Error {
    let why = failures.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
    Error::new(ErrorKind::Unavailable, format!("redlock: no majority of the nodes answered: {why}"))
}

impl Inspect for Redlock {
    /// Walks through all keys of all nodes.
    async fn list(&self, after: Option<&LockName>, limit: usize) -> Result<Vec<HolderInfo>> {
        let inner = &self.inner;
        let pattern = format::pattern(inner.format, &inner.space);
        let mut asked = inner.ask_all(|node| {
            let pattern = pattern.clone();
            async move { node.names(&pattern).await }
        });
        let (mut names, mut failures) = (BTreeSet::new(), Vec::new());
        until_decided(&mut asked, |_, answer| {
            match answer {
                Ok(keys) => names.extend(
                    keys.iter().filter_map(|key| format::name_of(inner.format, &inner.space, key)),
                ),
                Err(error) => failures.push(error),
            }
            false
        })
        .await;
        if inner.nodes.len() - failures.len() < inner.count().quorum() {
            return Err(unanswered(&failures));
        }
        let mut holders = Vec::new();
        for name in names.iter().filter(|name| after.is_none_or(|after| *name > after)) {
            if holders.len() >= limit {
                break;
            }
            holders.extend(self.holder(name).await?);
        }
        Ok(holders)
    }

    async fn holder(&self, name: &LockName) -> Result<Option<HolderInfo>> {
        let call = self.inner.call(&single::HOLDER, name, b"");
        self.inner.look(name, &single::HOLDER, call).await
    }

    async fn break_lock(&self, name: &LockName, when: Break) -> Result<Option<HolderInfo>> {
        let when = match when {
            Break::AtExpiry => "at expiry",
            Break::Now => "now",
        };
        let mut call = self.inner.call(&single::BREAK, name, b"");
        call.arg(self.inner.format.owner_len()).arg(when);
        self.inner.look(name, &single::BREAK, call).await
    }

    /// There is never anything to remove: all that a lock leaves has an expiry.
    async fn prune(&self) -> Result<u64> {
        Ok(0)
    }
}
