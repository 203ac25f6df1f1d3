//! The testbed's only reader of time: it bounds waits, and delays what a proxy passes on.

use std::{
    io,
    time::{Duration, Instant},
};

/// How long to wait between two looks at something that cannot call us.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(5);

#[allow(clippy::disallowed_methods, reason = "bounds a test's wait; nothing under test uses it")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Looks again and again until `look` finds something, which must be within `limit`.
///
/// A failed look is one that found nothing; the last failure is part of the error.
pub(crate) fn await_that<T>(
    what: &str,
    limit: Duration,
    mut look: impl FnMut() -> io::Result<Option<T>>,
) -> io::Result<T> {
    let start = now();
    loop {
        let last = match look() {
            Ok(Some(found)) => return Ok(found),
            Ok(None) => None,
            Err(error) => Some(error),
        };
        if start.elapsed() > limit {
            return Err(late(what, limit, last.as_ref()));
        }
        pause();
    }
}

fn late(what: &str, limit: Duration, last: Option<&io::Error>) -> io::Error {
    let last = last.map(|error| format!("; at last: {error}")).unwrap_or_default();
    io::Error::new(io::ErrorKind::TimedOut, format!("{what}: not within {limit:?}{last}"))
}

#[allow(clippy::disallowed_methods, reason = "what is waited for cannot call us; bounded")]
fn pause() {
    std::thread::sleep(LOOK_EVERY);
}
