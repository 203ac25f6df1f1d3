//! A descriptor that becomes readable at an instant of the boot-time clock, also when the machine slept in between.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use cerrojo::Instant;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

const NEVER: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
const NANOS_PER_SECOND: u64 = 1_000_000_000;

#[derive(Debug)]
pub(super) struct Timer(OwnedFd);

impl Timer {
    pub(super) fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        Ok(Self(timerfd_create(TimerfdClockId::Boottime, flags)?))
    }

    /// Sets it anew; unread, it is not readable any more until then.
    pub(super) fn set(&self, due: Option<Instant>) -> io::Result<()> {
        let it_value = due.map_or(NEVER, on_the_clock);
        let spec = Itimerspec { it_interval: NEVER, it_value };
        timerfd_settime(&self.0, TimerfdTimerFlags::ABSTIME, &spec)?;
        Ok(())
    }
}

impl AsFd for Timer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Never zero, which would disarm it.
fn on_the_clock(due: Instant) -> Timespec {
    let nanos = due.as_nanos().max(1);
    Timespec {
        tv_sec: i64::try_from(nanos / NANOS_PER_SECOND).unwrap_or(i64::MAX),
        tv_nsec: i64::try_from(nanos % NANOS_PER_SECOND).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustix::event::{PollFd, PollFlags, poll};

    use super::*;

    fn is_due(timer: &Timer, wait: &Timespec) -> bool {
        poll(&mut [PollFd::new(timer, PollFlags::IN)], Some(wait)).unwrap() > 0
    }

    #[test]
    fn it_is_due_at_its_instant_and_not_when_disarmed() {
        let (timer, minute) = (Timer::new().unwrap(), Timespec { tv_sec: 60, tv_nsec: 0 });
        timer.set(Some(Instant::now() + Duration::from_secs(3_600))).unwrap();
        assert!(!is_due(&timer, &NEVER));
        let due = Instant::now() + Duration::from_millis(20);
        timer.set(Some(due)).unwrap();
        assert!(is_due(&timer, &minute));
        assert!(Instant::now() >= due);
        timer.set(None).unwrap();
        assert!(!is_due(&timer, &NEVER));
        timer.set(Some(Instant::from_nanos(0))).unwrap();
        assert!(is_due(&timer, &minute), "what has passed is due at once");
    }
}
