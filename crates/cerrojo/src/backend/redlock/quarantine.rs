//! Which nodes may vote: a node that may have forgotten what it granted waits until all of that has ended.
//!
//! The Redis documentation asks operators to restart a node only after the longest TTL. This does it for them: what was
//! restarted, or promoted, or is another server than before, has no vote until a grace has passed. Renewals and
//! put-backs it takes.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use super::super::redis::{error::RedisError, info::Info, link::Inspects};
use crate::clock::Instant;

/// What is known of all nodes.
#[derive(Debug)]
pub(super) struct Register {
    grace: Duration,
    nodes: Mutex<Vec<Known>>,
}

/// What is known of one node.
#[derive(Clone, Debug, Default)]
struct Known {
    place: String,
    identity: Option<Identity>,
    votes_from: Option<Instant>,
    /// The node's wall clock at an instant of ours; for what is shown, and for nothing else.
    time: Option<(Duration, Instant)>,
}

/// Changes whenever a node may have lost data: with each start, and with each promotion.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Identity {
    run_id: String,
    former_history: Option<String>,
}

impl Register {
    pub(super) fn new(grace: Duration, places: impl IntoIterator<Item = String>) -> Arc<Self> {
        let known = places.into_iter().map(|place| Known { place, ..Known::default() });
        Arc::new(Self { grace, nodes: Mutex::new(known.collect()) })
    }

    /// What looks at each new connection of the node with this number.
    pub(super) fn inspects(self: &Arc<Self>, number: usize) -> Inspects {
        let register = Arc::clone(self);
        Arc::new(move |info| register.inspect(number, info))
    }

    /// Until when the node has no vote, if it has none now.
    pub(super) fn quarantined_until(&self, number: usize) -> Option<Instant> {
        let votes_from = self.nodes().get(number)?.votes_from?;
        (Instant::now() < votes_from).then_some(votes_from)
    }

    /// What the node's wall clock shows now, if it has not jumped.
    pub(super) fn time_of(&self, number: usize) -> Duration {
        let time = self.nodes().get(number).and_then(|known| known.time);
        time.map(|(time, at)| time + Instant::now().since(at)).unwrap_or_default()
    }

    fn inspect(&self, number: usize, info: &Info) -> Result<(), RedisError> {
        if info.is_replica() {
            return Err(RedisError::Replica);
        }
        if info.is_shard() {
            return Err(RedisError::Shard);
        }
        // A user who may not ask who it is cannot be told a restart either.
        let Some(run_id) = info.run_id() else {
            return Err(RedisError::Anonymous);
        };
        let identity = Identity {
            run_id: run_id.to_owned(),
            former_history: info.former_history().map(str::to_owned),
        };
        self.note(number, identity, info)
    }

    fn note(&self, number: usize, identity: Identity, info: &Info) -> Result<(), RedisError> {
        let mut nodes = self.nodes();
        let mut others = nodes.iter().enumerate().filter(|(other, _)| *other != number);
        let is_same = |known: &Known| {
            known.identity.as_ref().is_some_and(|other| other.run_id == identity.run_id)
        };
        if let Some((_, twin)) = others.find(|(_, known)| is_same(known)) {
            return Err(RedisError::Twin(twin.place.clone()));
        }
        let grace = self.grace_of(nodes.get(number), &identity, info);
        if let Some(known) = nodes.get_mut(number) {
            let votes_from = (!grace.is_zero()).then(|| Instant::now() + grace);
            known.votes_from = known.votes_from.max(votes_from);
            known.identity = Some(identity);
            known.time = info.time().map(|time| (time, Instant::now()));
        }
        Ok(())
    }

    /// How long a node that looks like this has no vote yet.
    fn grace_of(&self, known: Option<&Known>, identity: &Identity, info: &Info) -> Duration {
        match known.and_then(|known| known.identity.as_ref()) {
            Some(before) if before == identity => Duration::ZERO,
            // What had not reached a promoted replica is not on its disk either.
            Some(before) if info.syncs() && before.former_history == identity.former_history => {
                Duration::ZERO
            }
            // Counted on our clock: the node's own uptime goes by its wall clock.
            Some(_) => self.grace,
            None if identity.former_history.is_some() => self.grace,
            None if info.syncs() => Duration::ZERO,
            None => self.grace.saturating_sub(info.uptime().unwrap_or_default()),
        }
    }

    fn nodes(&self) -> MutexGuard<'_, Vec<Known>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use redis::Value;

    use super::*;
    use crate::clock;

    const GRACE: Duration = Duration::from_secs(60);

    fn register() -> Arc<Register> {
        Register::new(GRACE, ["a".to_owned(), "b".to_owned()])
    }

    fn info(run_id: &str, uptime: u64, more: &str) -> Info {
        let text = format!("run_id:{run_id}\r\nuptime_in_seconds:{uptime}\r\n{more}");
        Info::of(&Value::BulkString(text.into_bytes()))
    }

    fn syncing(info: Info) -> Info {
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        info.with_settings(Value::Map(vec![
            (text("appendonly"), text("yes")),
            (text("appendfsync"), text("always")),
        ]))
    }

    fn rest(register: &Register, number: usize) -> u64 {
        register.quarantined_until(number).map_or(0, |until| until.remaining().as_secs())
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_that_started_a_moment_ago_waits_for_the_rest_of_the_grace() {
        let register = register();
        register.inspects(0)(&info("x", 21, "")).unwrap();
        assert_eq!(rest(&register, 0), 40);
        register.inspects(1)(&info("y", 61, "")).unwrap();
        assert_eq!(rest(&register, 1), 0);
        clock::sleep(Duration::from_secs(41)).await;
        assert_eq!(rest(&register, 0), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_restart_that_we_see_counts_on_our_clock_whatever_the_node_says() {
        let register = register();
        register.inspects(0)(&info("x", 1_000, "")).unwrap();
        register.inspects(0)(&info("x", 1_000, "")).unwrap();
        assert_eq!(rest(&register, 0), 0);
        register.inspects(0)(&info("z", 1_000, "")).unwrap();
        assert_eq!(rest(&register, 0), 60);
    }

    #[tokio::test(start_paused = true)]
    async fn a_promotion_is_a_restart_also_when_first_seen() {
        let register = register();
        register.inspects(0)(&info("x", 1_000, "master_replid2:0f0f\r\n")).unwrap();
        assert_eq!(rest(&register, 0), 60);
        register.inspects(1)(&info("y", 1_000, "")).unwrap();
        register.inspects(1)(&info("y", 1_000, "master_replid2:0f0f\r\n")).unwrap();
        assert_eq!(rest(&register, 1), 60);
    }

    #[test]
    fn a_node_that_syncs_everything_forgets_nothing() {
        let register = register();
        register.inspects(0)(&syncing(info("x", 0, ""))).unwrap();
        register.inspects(0)(&syncing(info("y", 0, ""))).unwrap();
        assert_eq!(register.quarantined_until(0), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_promoted_replica_that_syncs_may_lack_what_had_not_reached_it() {
        let register = register();
        let promoted = || syncing(info("x", 1_000, "master_replid2:0f0f\r\n"));
        register.inspects(0)(&promoted()).unwrap();
        assert_eq!(rest(&register, 0), 60);
        register.inspects(1)(&syncing(info("y", 1_000, ""))).unwrap();
        register.inspects(1)(&syncing(info("y", 1_000, "master_replid2:0f0f\r\n"))).unwrap();
        assert_eq!(rest(&register, 1), 60);
    }

    #[test]
    fn what_is_no_node_is_refused() {
        let register = register();
        register.inspects(0)(&info("x", 100, "")).unwrap();
        for (twin, wanted) in [
            (info("x", 100, ""), "same server"),
            (info("y", 100, "role:slave\r\n"), "replica"),
            (info("y", 100, "cluster_enabled:1\r\n"), "cluster"),
            (Info::default(), "INFO"),
        ] {
            let why = register.inspects(1)(&twin).unwrap_err().to_string();
            assert!(why.contains(wanted), "{why}");
        }
    }

    #[test]
    fn without_a_grace_all_vote() {
        let register = Register::new(Duration::ZERO, ["a".to_owned()]);
        register.inspects(0)(&info("x", 0, "")).unwrap();
        register.inspects(0)(&info("y", 0, "")).unwrap();
        assert_eq!(register.quarantined_until(0), None);
    }
}
