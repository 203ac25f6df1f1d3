//! Order statistics.

use serde::Serialize;

/// Where samples lie.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Spread {
    pub(crate) samples: usize,
    pub(crate) min: f64,
    pub(crate) p10: f64,
    pub(crate) median: f64,
    pub(crate) p90: f64,
    pub(crate) p99: f64,
    pub(crate) max: f64,
}

impl Spread {
    /// `None` without samples.
    pub(crate) fn of(samples: &[f64]) -> Option<Self> {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let at = |percent| nearest_rank(&sorted, percent);
        Some(Self {
            samples: sorted.len(),
            min: *sorted.first()?,
            p10: at(10)?,
            median: middle(&sorted)?,
            p90: at(90)?,
            p99: at(99)?,
            max: *sorted.last()?,
        })
    }
}

/// The mean of the two in the middle, when there are two.
fn middle(sorted: &[f64]) -> Option<f64> {
    let upper = sorted.get(sorted.len() / 2)?;
    let lower = sorted.get(sorted.len().saturating_sub(1) / 2)?;
    Some((upper + lower) / 2.0)
}

/// The smallest sample that is not below `percent` of the samples.
fn nearest_rank(sorted: &[f64], percent: usize) -> Option<f64> {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_hundred() {
        let samples: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        let spread = Spread::of(&samples).unwrap();
        assert_eq!((spread.min, spread.p10, spread.median), (1.0, 10.0, 50.5));
        assert_eq!((spread.p90, spread.p99, spread.max), (90.0, 99.0, 100.0));
    }

    #[test]
    fn of_few_and_of_none() {
        let one = Spread::of(&[7.0]).unwrap();
        assert_eq!((one.min, one.median, one.p99), (7.0, 7.0, 7.0));
        assert_eq!(Spread::of(&[1.0, 5.0, 3.0]).unwrap().median, 3.0);
        assert_eq!(Spread::of(&[]), None);
    }
}
