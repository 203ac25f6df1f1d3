//! Asking all nodes at once, and answering as soon as the majority has.

use std::{future::Future, pin::Pin, sync::Arc, time::Duration};

use futures_util::{StreamExt, stream::FuturesUnordered};
use tokio_util::sync::CancellationToken;

use super::{
    super::redis::{error::RedisError, format::Seen},
    node::{Reason, Vote},
    summary::{Failure, Status, Summary},
};
use crate::clock::{self, Instant};

/// What a majority is, of so many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Nodes(pub(super) usize);

impl Nodes {
    pub(super) fn quorum(self) -> usize {
        self.0 / 2 + 1
    }
}

/// Questions to nodes, with each node's number beside its answer.
pub(super) type Asked<T> = FuturesUnordered<Pin<Box<dyn Future<Output = (usize, T)> + Send>>>;

/// Hears one answer after the other until `is_decided` says that it knows enough. Who has not answered by then is left in
/// `asked`.
pub(super) async fn until_decided<T>(
    asked: &mut Asked<T>,
    mut is_decided: impl FnMut(usize, T) -> bool,
) {
    while let Some((number, answer)) = asked.next().await {
        if is_decided(number, answer) {
            return;
        }
    }
}

/// The same, and then for `patience` longer whoever else answers. Who is later than that is left in `asked`.
pub(super) async fn until_decided_and_longer<T>(
    asked: &mut Asked<T>,
    patience: Duration,
    mut is_decided: impl FnMut(usize, T) -> bool,
) {
    until_decided(asked, &mut is_decided).await;
    let others = until_decided(asked, |number, answer| {
        is_decided(number, answer);
        false
    });
    let _ = clock::within(patience, others).await;
}

/// Hears the rest in the background, so that a dead connection is noticed; each node's time limit bounds that. Cancels the
/// token when nothing will be sent any more.
pub(super) fn hear_out<T: Send + 'static>(mut asked: Asked<T>) -> CancellationToken {
    let heard = CancellationToken::new();
    let ends = heard.clone().drop_guard();
    if !asked.is_empty() {
        tokio::spawn(async move {
            while asked.next().await.is_some() {}
            drop((asked, ends));
        });
    }
    heard
}

/// The nodes that had not voted yet when a round was decided. What is still to be sent to them, for want of a connection or
/// of the script, may be overtaken by what takes it back.
#[derive(Clone, Debug, Default)]
pub(super) struct Late {
    voted: Arc<[usize]>,
    heard: Option<CancellationToken>,
}

impl Late {
    pub(super) fn of<T: Send + 'static>(voted: &[usize], asked: Asked<T>) -> Self {
        Self { voted: voted.into(), heard: Some(hear_out(asked)) }
    }

    pub(super) fn has_voted(&self, number: usize) -> bool {
        self.voted.contains(&number)
    }

    /// What ends when nothing of that round will be sent to the node any more; `None`: that is so already.
    pub(super) fn until_over(
        &self,
        number: usize,
    ) -> Option<impl Future<Output = ()> + Send + use<>> {
        let heard = self.heard.as_ref().filter(|heard| !heard.is_cancelled())?;
        (!self.has_voted(number)).then(|| heard.clone().cancelled_owned())
    }
}

/// The answers to a yes-or-no question.
#[derive(Debug)]
pub(super) struct Poll {
    nodes: Nodes,
    pub(super) yes: usize,
    /// The numbers of the nodes that said no.
    pub(super) no: Vec<usize>,
    pub(super) failures: Vec<RedisError>,
}

impl Poll {
    pub(super) fn new(nodes: Nodes) -> Self {
        Self { nodes, yes: 0, no: Vec::new(), failures: Vec::new() }
    }

    /// Counts an answer. True: the majority has spoken.
    pub(super) fn count(&mut self, number: usize, answer: Result<bool, RedisError>) -> bool {
        match answer {
            Ok(true) => self.yes += 1,
            Ok(false) => self.no.push(number),
            Err(error) => self.failures.push(error),
        }
        self.answer().is_some()
    }

    /// What the majority says; a majority can no longer be had when too many say no.
    pub(super) fn answer(&self) -> Option<bool> {
        let quorum = self.nodes.quorum();
        match (self.yes >= quorum, self.no.len() > self.nodes.0 - quorum) {
            (true, _) => Some(true),
            (false, true) => Some(false),
            (false, false) => None,
        }
    }
}

/// The votes on one acquisition.
#[derive(Debug)]
pub(super) struct Tally {
    nodes: Nodes,
    /// The numbers of the nodes that voted.
    pub(super) voted: Vec<usize>,
    pub(super) acquired: usize,
    /// What the nodes say at which somebody else has it.
    pub(super) conflicts: Vec<Seen>,
    failures: Vec<Failure>,
}

impl Tally {
    pub(super) fn new(nodes: Nodes) -> Self {
        Self { nodes, voted: Vec::new(), acquired: 0, conflicts: Vec::new(), failures: Vec::new() }
    }

    /// Counts a vote. True: nothing that comes now changes what the round came to.
    pub(super) fn count(&mut self, number: usize, place: &str, vote: Vote) -> bool {
        match vote {
            Vote::Acquired => self.acquired += 1,
            Vote::Conflicted(seen) => self.conflicts.push(seen),
            Vote::Failed(reason) => {
                self.failures.push(failure(place, &reason));
                return self.is_decided();
            }
        }
        self.voted.push(number);
        self.is_decided()
    }

    fn is_decided(&self) -> bool {
        let quorum = self.nodes.quorum();
        let pending = self.nodes.0 - self.acquired - self.conflicts.len() - self.failures.len();
        // Who is refused waits for all that can still say why: how long it lasts, and who it is.
        self.has_quorum() || self.acquired + pending < quorum && self.conflicts.len() >= quorum
    }

    pub(super) fn has_quorum(&self) -> bool {
        self.acquired >= self.nodes.quorum()
    }

    /// After how many ms a majority can be free, unless somebody renews: nodes that we have taken are given back.
    pub(super) fn free_in_ms(&self) -> Option<u64> {
        let mut times: Vec<_> = vec![0; self.acquired];
        times.extend(
            self.conflicts.iter().map(|conflict| u64::try_from(conflict.pttl).unwrap_or(0)),
        );
        times.sort_unstable();
        times.get(self.nodes.quorum() - 1).copied()
    }

    /// The node's word on an owner who has a majority: then it is worth waiting for its release.
    pub(super) fn holder(&self, owner_len: usize) -> Option<&Seen> {
        let owner = |seen: &Seen| seen.value.iter().take(owner_len).copied().collect::<Vec<_>>();
        self.conflicts.iter().find(|one| {
            let same = self.conflicts.iter().filter(|other| owner(other) == owner(one));
            same.count() >= self.nodes.quorum()
        })
    }

    /// Whether a node failed that may be back at any time.
    pub(super) fn has_errors(&self) -> bool {
        self.failures.iter().any(|failure| failure.quarantined_until.is_none())
    }

    /// When enough nodes have left quarantine to make a majority, if that is what it lacks.
    pub(super) fn quorum_from(&self) -> Option<Instant> {
        let voting = self.acquired + self.conflicts.len();
        let lacking = self.nodes.quorum().checked_sub(voting + 1)?;
        let mut ends: Vec<_> =
            self.failures.iter().filter_map(|failure| failure.quarantined_until).collect();
        ends.sort_unstable();
        ends.get(lacking).copied()
    }

    pub(super) fn summary(self) -> Summary {
        let Self { nodes, acquired, conflicts, failures, .. } = self;
        let conflicted = conflicts.len();
        let status = match acquired + conflicted >= nodes.quorum() {
            _ if acquired >= nodes.quorum() => Status::Expired,
            true => Status::Conflicted,
            false => Status::NoQuorum,
        };
        Summary { status, acquired, conflicted, failures }
    }
}

fn failure(place: &str, reason: &Reason) -> Failure {
    let (why, quarantined_until) = match reason {
        Reason::Error(error) => (error.message(place), None),
        Reason::QuarantinedUntil(until) => {
            let rest = until.remaining().as_secs_f64();
            (
                format!(
                    "no vote for another {rest:.1} s (restart_grace): it may have been restarted"
                ),
                Some(*until),
            )
        }
    };
    Failure { node: place.to_owned(), why, quarantined_until }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conflict(owner: &str, pttl: i64) -> Vote {
        Vote::Conflicted(Seen { pttl, value: owner.into(), at: 0 })
    }

    fn failed() -> Vote {
        Vote::Failed(Reason::Error(RedisError::NoAnswer(Duration::ZERO)))
    }

    fn tally(nodes: usize, votes: impl IntoIterator<Item = Vote>) -> (Tally, usize) {
        let (mut tally, mut heard) = (Tally::new(Nodes(nodes)), 0);
        for vote in votes {
            heard += 1;
            if tally.count(heard, "n", vote) {
                break;
            }
        }
        (tally, heard)
    }

    #[test]
    fn a_majority_is_more_than_half() {
        let quorums: Vec<_> = (1..=6).map(|n| Nodes(n).quorum()).collect();
        assert_eq!(quorums, [1, 2, 2, 3, 3, 4]);
    }

    #[test]
    fn a_majority_is_not_kept_waiting() {
        let (tally, heard) =
            tally(5, [Vote::Acquired, failed(), Vote::Acquired, Vote::Acquired, failed()]);
        assert!(tally.has_quorum());
        assert_eq!(heard, 4);
    }

    #[test]
    fn statuses_are_those_of_the_table() {
        use Status::{Conflicted, Expired, NoQuorum};
        let status = |nodes, votes: Vec<Vote>| tally(nodes, votes).0.summary().status;
        assert_eq!(status(3, vec![Vote::Acquired, Vote::Acquired]), Expired);
        assert_eq!(status(3, vec![Vote::Acquired, conflict("a", 1), failed()]), Conflicted);
        assert_eq!(status(3, vec![failed(), Vote::Acquired, failed()]), NoQuorum);
        assert_eq!(
            status(
                6,
                vec![Vote::Acquired, Vote::Acquired, Vote::Acquired, failed(), failed(), failed()]
            ),
            NoQuorum
        );
    }

    #[test]
    fn a_poll_is_over_when_the_majority_has_spoken() {
        let poll = |answers: &[Option<bool>]| {
            let mut poll = Poll::new(Nodes(3));
            let late = || RedisError::NoAnswer(Duration::ZERO);
            for (number, answer) in answers.iter().enumerate() {
                poll.count(number, answer.ok_or_else(late));
            }
            poll.answer()
        };
        assert_eq!(poll(&[Some(true), Some(true)]), Some(true));
        assert_eq!(poll(&[Some(false), None, Some(false)]), Some(false));
        assert_eq!(poll(&[Some(true), None, Some(false)]), None);
        assert_eq!(poll(&[Some(true)]), None);
    }

    #[test]
    fn a_holder_is_who_has_a_majority() {
        let (held, _) = tally(3, [conflict("aa 1", 5), conflict("aa 2", 9)]);
        assert_eq!(held.holder(2).unwrap().pttl, 5);
        let (split, _) = tally(3, [conflict("aa", 5), conflict("bb", 9), Vote::Acquired]);
        assert!(split.holder(2).is_none());
    }

    #[test]
    fn a_majority_is_free_when_the_quorum_th_is() {
        assert_eq!(tally(3, [conflict("a", 50), conflict("a", 70)]).0.free_in_ms(), Some(70));
        assert_eq!(
            tally(3, [Vote::Acquired, conflict("a", 70), conflict("b", 90)]).0.free_in_ms(),
            Some(70)
        );
        assert_eq!(tally(3, [conflict("a", 70), failed(), failed()]).0.free_in_ms(), None);
    }

    #[test]
    fn it_is_known_when_quarantines_have_ended() {
        let at = |secs: u64| Instant::from_nanos(secs * 1_000_000_000);
        let out = |secs: u64| Vote::Failed(Reason::QuarantinedUntil(at(secs)));
        assert_eq!(tally(3, [out(9), out(5), out(7)]).0.quorum_from(), Some(at(7)));
        assert_eq!(tally(3, [Vote::Acquired, out(5), out(7)]).0.quorum_from(), Some(at(5)));
        assert_eq!(tally(3, [failed(), failed(), out(7)]).0.quorum_from(), None);
    }
}
