//! When a command has to end for its lease's sake. Pure: told what happens and when, it says what to do.
//!
//! | phase | by | becomes | and does |
//! |---|---|---|---|
//! | running | a renewal | running | - |
//! | running | loss, the runner's end, or the instant at which the grace begins | ending | TERM |
//! | running | the command's own end, with something left of what it started | ending | TERM |
//! | ending | the instant for KILL | killing | KILL |
//! | killing | each look | killing | KILL again: what has just been forked |
//!
//! The instants, on the boot-time clock: KILL at the latest a *margin* before the validity ends, TERM at the latest a
//! *grace* before that. Ending is final: a renewal that succeeds after TERM was sent changes nothing, since a half-stopped
//! command is of no use to anyone.

use std::time::Duration;

use cerrojo::Instant;
use serde::{Deserialize, Serialize};

use super::message::Lease;

/// The longest that what got KILL is given to be gone before the validity ends.
const MARGIN_MAX: Duration = Duration::from_secs(1);
/// How often what got KILL is looked after.
const LOOK: Duration = Duration::from_millis(100);

/// What becomes of the command when the lease is lost, or about to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
pub(crate) enum OnLost {
    /// TERM, and KILL after the grace.
    Term,
    /// KILL at once.
    Kill,
    /// Nothing: it runs on without the lock.
    Ignore,
}

/// What is to be done to the command and all that it has started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Terminate,
    Kill,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Running,
    Ending { kill_at: Instant },
    Killing { look_at: Instant },
}

/// The end of one command.
#[derive(Debug)]
pub(super) struct Ending {
    phase: Phase,
    valid_until: Instant,
    grace: Duration,
    margin: Duration,
    on_lost: OnLost,
}

impl Ending {
    pub(super) fn of(lease: &Lease) -> Self {
        let grace = match lease.on_lost {
            OnLost::Kill => Duration::ZERO,
            OnLost::Term | OnLost::Ignore => Duration::from_nanos(lease.grace_ns),
        };
        Self {
            phase: Phase::Running,
            valid_until: lease.valid_until(),
            grace,
            margin: MARGIN_MAX.min(Duration::from_nanos(lease.ttl_ns) / 16),
            on_lost: lease.on_lost,
        }
    }

    /// Whether the command is being ended.
    pub(super) fn is_under_way(&self) -> bool {
        self.phase != Phase::Running
    }

    pub(super) fn renewed(&mut self, valid_until: Instant) {
        self.valid_until = valid_until;
    }

    /// The lease is lost, or the runner is gone, which comes to the same.
    pub(super) fn begin(&mut self, now: Instant) -> Option<Step> {
        if self.is_under_way() || self.on_lost == OnLost::Ignore {
            return None;
        }
        if self.on_lost == OnLost::Kill { self.kill(now) } else { self.tidy(now) }
    }

    /// The command has ended by itself and left something behind, which has to be gone before the lock is given on.
    pub(super) fn tidy(&mut self, now: Instant) -> Option<Step> {
        if self.is_under_way() {
            return None;
        }
        self.phase = Phase::Ending { kill_at: (now + self.grace).min(self.kill_at_the_latest()) };
        Some(Step::Terminate)
    }

    /// When [`Ending::look`] has something to do unless something else happens.
    pub(super) fn due(&self) -> Option<Instant> {
        match self.phase {
            Phase::Running if self.on_lost == OnLost::Ignore => None,
            Phase::Running => Some(self.kill_at_the_latest() - self.grace),
            Phase::Ending { kill_at } => Some(kill_at),
            Phase::Killing { look_at } => Some(look_at),
        }
    }

    /// What the clock alone brings.
    pub(super) fn look(&mut self, now: Instant) -> Option<Step> {
        if self.due().is_none_or(|due| now < due) {
            return None;
        }
        match self.phase {
            Phase::Running => self.begin(now),
            Phase::Ending { .. } | Phase::Killing { .. } => self.kill(now),
        }
    }

    fn kill(&mut self, now: Instant) -> Option<Step> {
        self.phase = Phase::Killing { look_at: now + LOOK };
        Some(Step::Kill)
    }

    fn kill_at_the_latest(&self) -> Instant {
        self.valid_until - self.margin
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const GRACE: Duration = Duration::from_secs(5);

    fn at(seconds: u64) -> Instant {
        Instant::from_nanos(0) + SECOND * u32::try_from(seconds).unwrap()
    }

    fn nanos(length: Duration) -> u64 {
        length.as_nanos().try_into().unwrap()
    }

    /// A TTL of 32 s that ends at 132 s: a margin of 1 s.
    fn ending(on_lost: OnLost) -> Ending {
        Ending::of(&Lease {
            store: String::new(),
            name: String::new(),
            owner: [0; 16],
            valid_until_ns: at(132).as_nanos(),
            ttl_ns: nanos(SECOND * 32),
            grace_ns: nanos(GRACE),
            on_lost,
        })
    }

    #[test]
    fn unrenewed_it_gets_term_a_grace_before_kill_and_kill_before_the_validity_ends() {
        let mut ending = ending(OnLost::Term);
        assert_eq!(ending.due(), Some(at(126)));
        assert_eq!(ending.look(at(125)), None);
        assert!(!ending.is_under_way());
        assert_eq!(ending.look(at(126)), Some(Step::Terminate));
        assert!(ending.is_under_way());
        assert_eq!(ending.due(), Some(at(131)));
        assert_eq!(ending.look(at(130)), None);
        assert_eq!(ending.look(at(131)), Some(Step::Kill));
    }

    #[test]
    fn a_renewal_puts_it_off() {
        let mut ending = ending(OnLost::Term);
        ending.renewed(at(142));
        assert_eq!(ending.look(at(126)), None);
        assert_eq!(ending.due(), Some(at(136)));
    }

    #[test]
    fn a_loss_gives_the_grace_and_no_more() {
        let mut ending = ending(OnLost::Term);
        assert_eq!(ending.begin(at(100)), Some(Step::Terminate));
        assert_eq!(ending.due(), Some(at(105)));
    }

    #[test]
    fn a_loss_near_the_end_gives_what_is_left() {
        for now in 126..=135 {
            let mut ending = ending(OnLost::Term);
            assert_eq!(ending.begin(at(now)), Some(Step::Terminate));
            assert_eq!(ending.due(), Some(at(131)), "lost at {now}");
        }
    }

    #[test]
    fn ending_is_final() {
        let mut ending = ending(OnLost::Term);
        assert_eq!(ending.begin(at(100)), Some(Step::Terminate));
        ending.renewed(at(200));
        assert_eq!(ending.due(), Some(at(105)));
        assert_eq!(ending.begin(at(101)), None);
        assert_eq!(ending.look(at(105)), Some(Step::Kill));
    }

    #[test]
    fn what_got_kill_is_looked_after_until_it_is_gone() {
        let mut ending = ending(OnLost::Kill);
        assert_eq!(ending.begin(at(100)), Some(Step::Kill));
        assert_eq!(ending.begin(at(100)), None);
        assert_eq!(ending.due(), Some(at(100) + LOOK));
        assert_eq!(ending.look(at(100) + LOOK / 2), None);
        assert_eq!(ending.look(at(101)), Some(Step::Kill));
        assert_eq!(ending.due(), Some(at(101) + LOOK));
    }

    #[test]
    fn with_kill_there_is_no_grace() {
        let mut ending = ending(OnLost::Kill);
        assert_eq!(ending.due(), Some(at(131)));
        assert_eq!(ending.look(at(131)), Some(Step::Kill));
    }

    #[test]
    fn what_a_command_leaves_behind_gets_the_grace_also_with_ignore() {
        for on_lost in [OnLost::Term, OnLost::Ignore] {
            let mut ending = ending(on_lost);
            assert_eq!(ending.tidy(at(100)), Some(Step::Terminate));
            assert_eq!(ending.tidy(at(101)), None);
            assert_eq!(ending.due(), Some(at(105)));
            assert_eq!(ending.look(at(105)), Some(Step::Kill));
        }
    }

    #[test]
    fn with_ignore_nothing_ends_it() {
        let mut ending = ending(OnLost::Ignore);
        assert_eq!(ending.due(), None);
        assert_eq!(ending.begin(at(100)), None);
        assert_eq!(ending.look(at(1_000)), None);
        assert!(!ending.is_under_way());
    }

    #[test]
    fn the_margin_is_a_sixteenth_of_the_ttl_but_no_more_than_a_second() {
        for (ttl_ms, margin_ms) in [(800, 50), (16_000, 1_000), (3_600_000, 1_000)] {
            let lease = Lease {
                store: String::new(),
                name: String::new(),
                owner: [0; 16],
                valid_until_ns: 0,
                ttl_ns: nanos(Duration::from_millis(ttl_ms)),
                grace_ns: 0,
                on_lost: OnLost::Term,
            };
            assert_eq!(Ending::of(&lease).margin, Duration::from_millis(margin_ms));
        }
    }
}
