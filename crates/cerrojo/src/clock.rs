//! The only reader of time.
//!
//! The clock is `CLOCK_BOOTTIME`, which runs on while the machine is suspended. Tokio's timers do not, so
//! every sleep here reads the clock again at least once a second: after a resume, what was due is
//! noticed within [`RE_READ`]. Off Linux the standard library's monotonic clock stands in (untested).
//! In unit tests Tokio's clock is the clock, so that it can be paused.
#![allow(clippy::disallowed_methods)]

use std::{
    fmt,
    future::Future,
    ops::{Add, Sub},
    time::Duration,
};

/// The longest sleep before the clock is read again.
pub const RE_READ: Duration = Duration::from_secs(1);

/// A point on this machine's boot-time clock. Says nothing on another machine or after a reboot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

/// The absolute end of waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Deadline(Instant);

/// The time was up before the future was ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elapsed;

impl Instant {
    /// Now.
    #[must_use]
    pub fn now() -> Self {
        Self(nanos(source::since_boot()))
    }

    /// The time from `earlier` to this instant; zero if `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// The time from now to this instant; zero if it has passed.
    #[must_use]
    pub fn remaining(self) -> Duration {
        self.since(Self::now())
    }

    /// Nanoseconds since the machine started: what processes of one machine can compare.
    #[must_use]
    pub fn as_nanos(self) -> u64 {
        self.0
    }

    /// The instant that [`Instant::as_nanos`] said.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// The last multiple of `tick` that is not after this instant.
    #[must_use]
    pub(crate) fn floor_to(self, tick: Duration) -> Self {
        Self(self.0 - self.0.checked_rem(nanos(tick)).unwrap_or(0))
    }
}

/// Saturates: the far end of the clock is centuries away.
impl Add<Duration> for Instant {
    type Output = Self;

    fn add(self, length: Duration) -> Self {
        Self(self.0.saturating_add(nanos(length)))
    }
}

/// Saturates at the machine's start.
impl Sub<Duration> for Instant {
    type Output = Self;

    fn sub(self, length: Duration) -> Self {
        Self(self.0.saturating_sub(nanos(length)))
    }
}

impl Deadline {
    /// The deadline `wait` from now.
    #[must_use]
    pub fn after(wait: Duration) -> Self {
        Self(Instant::now() + wait)
    }

    /// The deadline at an instant.
    #[must_use]
    pub fn at(instant: Instant) -> Self {
        Self(instant)
    }

    /// The instant at which waiting ends.
    #[must_use]
    pub fn instant(self) -> Instant {
        self.0
    }

    /// Whether waiting has ended.
    #[must_use]
    pub fn has_passed(self) -> bool {
        Instant::now() >= self.0
    }
}

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the time limit passed")
    }
}

impl std::error::Error for Elapsed {}

/// Sleeps until `due` by the boot-time clock; ready at once if it has passed.
///
/// # Cancel safety
///
/// May be dropped at any time.
pub async fn sleep_until(due: Instant) {
    loop {
        let now = Instant::now();
        if now >= due {
            return;
        }
        // Re-reads fall on whole seconds, so that many sleepers share one wake-up of the runtime.
        let next_read = (now + RE_READ).floor_to(RE_READ);
        tokio::time::sleep(due.min(next_read).since(now)).await;
    }
}

/// Sleeps for `length` by the boot-time clock.
///
/// # Cancel safety
///
/// May be dropped at any time.
pub async fn sleep(length: Duration) {
    sleep_until(Instant::now() + length).await;
}

/// What `work` answers, if it answers before `due`.
///
/// # Errors
///
/// [`Elapsed`] when `due` came first; the work is dropped.
pub async fn until<F: Future>(due: Instant, work: F) -> Result<F::Output, Elapsed> {
    tokio::select! {
        biased;
        output = work => Ok(output),
        () = sleep_until(due) => Err(Elapsed),
    }
}

/// What `work` answers, if it answers within `limit`.
///
/// # Errors
///
/// [`Elapsed`] when the limit came first; the work is dropped.
pub fn within<F: Future>(
    limit: Duration,
    work: F,
) -> impl Future<Output = Result<F::Output, Elapsed>> {
    until(Instant::now() + limit, work)
}

fn nanos(length: Duration) -> u64 {
    u64::try_from(length.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(all(not(test), target_os = "linux"))]
mod source {
    use std::time::Duration;

    pub(super) fn since_boot() -> Duration {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        Duration::try_from(now).unwrap_or(Duration::MAX)
    }
}

#[cfg(all(not(test), not(target_os = "linux")))]
mod source {
    use std::{sync::LazyLock, time::Duration};

    static START: LazyLock<std::time::Instant> = LazyLock::new(std::time::Instant::now);

    pub(super) fn since_boot() -> Duration {
        START.elapsed()
    }
}

#[cfg(test)]
mod source {
    use std::{sync::LazyLock, time::Duration};

    static START: LazyLock<std::time::Instant> = LazyLock::new(std::time::Instant::now);

    pub(super) fn since_boot() -> Duration {
        let now = tokio::time::Instant::now().into_std();
        Duration::from_secs(3600) + now.saturating_duration_since(*START)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn sleeps_no_longer_than_asked_over_many_reads() {
        let start = Instant::now();
        sleep(Duration::from_millis(3_500)).await;
        let slept = Instant::now().since(start);
        assert!((3_500..3_510).contains(&slept.as_millis()), "{slept:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_passed_instant_is_ready_at_once() {
        let start = Instant::now();
        sleep_until(start - Duration::from_secs(1)).await;
        assert_eq!(Instant::now(), start);
    }

    #[tokio::test(start_paused = true)]
    async fn within_gives_up_at_the_limit() {
        assert_eq!(
            within(Duration::from_secs(1), std::future::pending::<()>()).await,
            Err(Elapsed)
        );
        assert_eq!(within(Duration::ZERO, std::future::ready(7)).await, Ok(7));
    }

    #[test]
    fn arithmetic_saturates() {
        let late = Instant::from_nanos(u64::MAX - 1) + Duration::MAX;
        assert_eq!(late.as_nanos(), u64::MAX);
        assert_eq!(Instant::from_nanos(5) - Duration::MAX, Instant::from_nanos(0));
        assert_eq!(Instant::from_nanos(57).floor_to(Duration::from_nanos(10)).as_nanos(), 50);
        assert_eq!(Instant::from_nanos(57).floor_to(Duration::ZERO).as_nanos(), 57);
    }
}
