//! TTLs, and until when a grant may be acted on. Pure arithmetic.

use std::{fmt, time::Duration};

use crate::clock::Instant;

/// The length of a lease: whole milliseconds from 10 ms to 24 h.
///
/// ```
/// # use cerrojo::Ttl;
/// assert_eq!(Ttl::secs(30)?, Ttl::default());
/// assert!(Ttl::millis(9).is_err());
/// # Ok::<(), cerrojo::InvalidTtl>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ttl(Duration);

/// Why a length cannot be a [`Ttl`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a TTL is whole milliseconds from 10 ms to 24 h, not {0:?}")]
pub struct InvalidTtl(Duration);

impl Ttl {
    /// The shortest TTL, 10 ms.
    pub const MIN: Self = Self(Duration::from_millis(10));
    /// The longest TTL, 24 h.
    pub const MAX: Self = Self(Duration::from_secs(24 * 60 * 60));

    /// A TTL of whole seconds.
    ///
    /// # Errors
    ///
    /// [`InvalidTtl`] below 10 ms or above 24 h.
    pub fn secs(secs: u64) -> Result<Self, InvalidTtl> {
        Duration::from_secs(secs).try_into()
    }

    /// A TTL of whole milliseconds.
    ///
    /// # Errors
    ///
    /// [`InvalidTtl`] below 10 ms or above 24 h.
    pub fn millis(millis: u64) -> Result<Self, InvalidTtl> {
        Duration::from_millis(millis).try_into()
    }

    /// The TTL as a duration.
    #[must_use]
    pub fn get(self) -> Duration {
        self.0
    }
}

/// 30 s.
impl Default for Ttl {
    fn default() -> Self {
        Self(Duration::from_secs(30))
    }
}

impl TryFrom<Duration> for Ttl {
    type Error = InvalidTtl;

    fn try_from(length: Duration) -> Result<Self, InvalidTtl> {
        let whole = length.subsec_nanos().is_multiple_of(1_000_000);
        if whole && (Self::MIN.0..=Self::MAX.0).contains(&length) {
            Ok(Self(length))
        } else {
            Err(InvalidTtl(length))
        }
    }
}

impl fmt::Debug for Ttl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What is taken off a TTL because two clocks do not run at the same rate.
///
/// The default, 1 % plus 2 ms, is Redlock's (redis.io, "Distributed Locks with Redis").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drift {
    /// Parts per million of the TTL; at most 500,000 count.
    pub rate_ppm: u32,
    /// A fixed part, for timer granularity.
    pub fixed: Duration,
}

impl Default for Drift {
    fn default() -> Self {
        Self { rate_ppm: 10_000, fixed: Duration::from_millis(2) }
    }
}

impl Drift {
    pub(crate) fn of(self, ttl: Ttl) -> Duration {
        let rate = ttl.get() * self.rate_ppm.min(500_000) / 1_000_000;
        rate + self.fixed
    }
}

/// One grant's time line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Validity {
    /// Not later than the moment at which the store began this grant's TTL.
    pub(crate) counted_from: Instant,
    /// Until when we may act.
    pub(crate) until: Instant,
    ttl: Ttl,
}

impl Validity {
    pub(crate) fn new(counted_from: Instant, ttl: Ttl, drift: Drift) -> Self {
        let until = counted_from + ttl.get().saturating_sub(drift.of(ttl));
        Self { counted_from, until, ttl }
    }

    /// A third of the TTL in, at or before it on a grid of `tick`, so that renewals fall together.
    pub(crate) fn renew_at(&self, tick: Duration) -> Instant {
        let due = self.counted_from + self.ttl.get() / 3;
        due.floor_to(tick.min(self.ttl.get() / 12))
    }

    /// Whether at least half of the TTL is left: enough to hand the guard out.
    pub(crate) fn is_fresh(&self, now: Instant) -> bool {
        now + self.ttl.get() / 2 <= self.counted_from + self.ttl.get()
    }

    pub(crate) fn has_ended(&self, now: Instant) -> bool {
        now >= self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    fn validity(ttl_ms: u64) -> Validity {
        Validity::new(at(100_000), Ttl::millis(ttl_ms).unwrap(), Drift::default())
    }

    #[test]
    fn ttl_edges() {
        for good in [ms(10), ms(11), ms(86_400_000)] {
            assert_eq!(Ttl::try_from(good).unwrap().get(), good);
        }
        let bad = [
            Duration::ZERO,
            Duration::from_micros(999),
            ms(9),
            Duration::from_micros(10_500),
            ms(86_400_001),
            Duration::MAX,
        ];
        for length in bad {
            assert_eq!(Ttl::try_from(length), Err(InvalidTtl(length)));
        }
        assert!(Ttl::secs(u64::MAX).is_err());
    }

    #[test]
    fn validity_is_ttl_less_drift_counted_from_the_request() {
        assert_eq!(validity(10_000).until, at(100_000 + 10_000 - 100 - 2));
        assert_eq!(validity(10).until, at(100_000) + Duration::from_micros(7_900));
        let all = Drift { rate_ppm: u32::MAX, fixed: ms(50) };
        assert_eq!(Validity::new(at(5), Ttl::MIN, all).until, at(5));
    }

    #[test]
    fn renewal_is_due_at_a_third_or_a_little_before() {
        assert_eq!(validity(30_000).renew_at(ms(20)), at(110_000));
        assert_eq!(validity(10_000).renew_at(ms(20)), at(103_320));
        for ttl_ms in [10, 33, 1_000] {
            let v = validity(ttl_ms);
            let due = v.renew_at(ms(20));
            assert!(due <= v.counted_from + ms(ttl_ms) / 3);
            assert!(due >= v.counted_from + ms(ttl_ms) / 4);
        }
    }

    #[test]
    fn fresh_means_half_is_left() {
        let v = validity(10_000);
        assert!(v.is_fresh(at(105_000)));
        assert!(!v.is_fresh(at(105_001)));
        assert!(!v.has_ended(at(109_897)));
        assert!(v.has_ended(at(109_898)));
    }
}
