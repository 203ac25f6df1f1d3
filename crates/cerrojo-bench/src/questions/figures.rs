//! What the turns of a fleet show.

use std::collections::BTreeMap;

use cerrojo_bench::fleet::Turn;

use crate::{harness::Played, stats::Spread};

/// How many contend for one lock.
pub(super) const WAITERS: usize = 16;

/// Without the first tenth of the time, in which all warm up.
pub(super) fn rate(turns: &[Turn]) -> f64 {
    let start = turns.iter().map(|turn| turn.asked).min().unwrap_or_default();
    let end = turns.iter().map(|turn| turn.released).max().unwrap_or_default();
    let warm = start + (end - start) / 10;
    let counted = turns.iter().filter(|turn| turn.asked >= warm).count();
    counted as f64 * 1e9 / (end - warm).max(1) as f64
}

/// Of one lock for which all contend.
pub(super) fn of_contest(mut turns: Vec<Turn>) -> Played {
    turns.sort_by_key(|turn| turn.acquired);
    let violations = turns.iter().zip(turns.iter().skip(1)).filter_map(overlap).collect();
    let warm = turns.split_off(turns.len() / 10);
    let waits: Vec<_> = warm.iter().map(|turn| (turn.acquired - turn.asked) as f64 / 1e6).collect();
    let long = Spread::of(&waits).map(|spread| spread.p99);
    Played::default()
        .figure("hand-offs", "1/s", vec![hand_offs(&warm)])
        .figure("turns, repeated ones too", "1/s", vec![per_second(&warm, warm.len())])
        .figure("release to next holder", "ms", passing(&warm))
        .figure("wait", "ms", waits)
        .figure("99th percentile of a round's waits", "ms", Vec::from_iter(long))
        .figure("most by fewest turns of one", "", vec![imbalance(&warm)])
        .violations(violations)
}

pub(super) fn overlap((one, next): (&Turn, &Turn)) -> Option<String> {
    (next.acquired < one.released).then(|| format!("two holders at once: {one:?} and {next:?}"))
}

/// Hand-offs a second; one that takes the lock again after itself is none.
fn hand_offs(turns: &[Turn]) -> f64 {
    per_second(turns, passed_on(turns).count())
}

/// Milliseconds from just before a release until somebody else has the lock.
fn passing(turns: &[Turn]) -> Vec<f64> {
    let pairs = passed_on(turns);
    pairs.map(|(one, next)| next.acquired.saturating_sub(one.released) as f64 / 1e6).collect()
}

/// Each turn that somebody else's follows, with that one.
fn passed_on(turns: &[Turn]) -> impl Iterator<Item = (&Turn, &Turn)> {
    let pairs = turns.iter().zip(turns.iter().skip(1));
    pairs.filter(|(one, next)| who(one) != who(next))
}

fn per_second(turns: &[Turn], count: usize) -> f64 {
    let ends = turns.first().zip(turns.last());
    let took = ends.map_or(0, |(first, last)| last.acquired - first.acquired);
    count as f64 * 1e9 / took.max(1) as f64
}

/// Where somebody had none, as if it had been one.
fn imbalance(turns: &[Turn]) -> f64 {
    let mut counts = BTreeMap::new();
    turns.iter().for_each(|turn| *counts.entry(who(turn)).or_insert(0_u32) += 1);
    let most = counts.values().max().copied().unwrap_or(1);
    let fewest =
        if counts.len() < WAITERS { 1 } else { counts.values().min().copied().unwrap_or(1) };
    f64::from(most) / f64::from(fewest)
}

fn who(turn: &Turn) -> (usize, u64) {
    (turn.process, turn.task)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(task: u64, acquired: u64) -> Turn {
        Turn { process: 0, task, asked: acquired, acquired, released: acquired + 5 }
    }

    #[test]
    fn taking_it_again_is_no_hand_off() {
        let turns = [turn(0, 0), turn(0, 500_000_000), turn(1, 1_000_000_000)];
        assert_eq!(hand_offs(&turns), 1.0);
        assert_eq!(passing(&turns), [499.999_995]);
        assert_eq!(hand_offs(&[]), 0.0);
    }

    #[test]
    fn two_holders_at_once_are_seen() {
        assert!(overlap((&turn(0, 0), &turn(1, 4))).is_some());
        assert!(overlap((&turn(0, 0), &turn(1, 5))).is_none());
    }

    #[test]
    fn who_had_no_turn_counts_as_one() {
        let mut turns: Vec<_> = (0..16).map(|task| turn(task, task)).collect();
        turns.extend([turn(3, 20), turn(3, 21)]);
        assert_eq!(imbalance(&turns), 3.0);
        turns.retain(|turn| turn.task != 4);
        assert_eq!(imbalance(&turns), 3.0);
    }

    #[test]
    fn the_rate_leaves_out_the_warm_up() {
        let turn = |asked| Turn { process: 0, task: 0, asked, acquired: asked, released: asked };
        let turns: Vec<_> = (0..=100).map(|tick| turn(tick * 10_000_000)).collect();
        assert!((rate(&turns) - 101.0).abs() < 1.0, "{}", rate(&turns));
        assert_eq!(rate(&[]), 0.0);
    }
}
