//! What the server's clock shows at least, so that a request says until when it may still be done.
//!
//! A statement that was late, in the network or in a server that was stopped, would otherwise be carried out after its asker has given
//! it up, and has given back what it might have got. Only the server's own clock decides; one that jumps makes requests late, or
//! late ones pass.

use std::time::Duration;

use crate::clock::Instant;

/// By how much the rates of two clocks may differ.
const DRIFT: u32 = 1_000;

/// A reading: at `read_at` by our clock the server's showed `micros`, or more.
#[derive(Clone, Copy, Debug)]
pub(super) struct ServerClock {
    pub(super) read_at: Instant,
    /// Since the epoch.
    pub(super) micros: i64,
}

impl ServerClock {
    /// What the server's clock shows at our instant `until`, or a little later.
    pub(super) fn at(self, until: Instant) -> i64 {
        let ahead = until.since(self.read_at);
        let slack = Instant::now().since(self.read_at) / DRIFT;
        self.micros.saturating_add(micros(ahead + slack))
    }
}

fn micros(length: Duration) -> i64 {
    i64::try_from(length.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_request_may_be_done_until_its_asker_gives_it_up() {
        let clock = ServerClock { read_at: Instant::now(), micros: 5_000_000 };
        let until = |after| Instant::now() + Duration::from_secs(after);
        assert_eq!(clock.at(until(2)), 7_000_000);
        crate::clock::sleep(Duration::from_secs(1_000)).await;
        let late = clock.at(until(2)) - 1_007_000_000;
        assert!((1_000_000..1_010_000).contains(&late), "a thousandth of what has passed: {late}");
        assert_eq!(ServerClock { micros: i64::MAX, ..clock }.at(until(2)), i64::MAX);
    }
}
