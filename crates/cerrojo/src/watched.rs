//! What operators see: metrics by the `metrics` facade and events by `tracing`.
//!
//! Labels are few and of few values; the lock name is one only where [`Options::label_lock_name`] says so.
//!
//! [`Options::label_lock_name`]: crate::Options::label_lock_name

use std::time::Duration;

use metrics::{Label, SharedString};

use crate::{LockName, Result, clock::Instant};

/// Counter: acquisitions by `outcome` (`granted`, `failed`, `cancelled`) and `reason` (`none`, or the error's kind).
pub const ACQUISITIONS: &str = "cerrojo_acquisitions_total";
/// Histogram: seconds from the call of acquire to its answer.
pub const WAIT: &str = "cerrojo_wait_seconds";
/// Histogram: seconds from the grant to the release or loss.
pub const HOLD: &str = "cerrojo_hold_seconds";
/// Gauge: acquisitions under way.
pub const WAITERS: &str = "cerrojo_waiters";
/// Counter: renewals that failed without saying that the lease is gone.
pub const RENEWALS_FAILED: &str = "cerrojo_renewals_failed_total";
/// Counter: leases that came to be at risk, by a failed renewal after a good one.
pub const AT_RISK: &str = "cerrojo_at_risk_total";
/// Counter: leases lost, by `reason` (`refused`, `session_ended`, `validity_ended`).
pub const LOST: &str = "cerrojo_lost_total";

/// The labels of everything that one locker counts for one name.
#[derive(Clone, Debug)]
pub(crate) struct Labels {
    backend: &'static str,
    name: Option<SharedString>,
}

impl Labels {
    pub(crate) fn new(backend: &'static str, name: Option<&LockName>) -> Self {
        let name = name.map(|name| SharedString::from(name.as_str().to_owned()));
        Self { backend, name }
    }

    fn with(&self, more: &[(&'static str, &'static str)]) -> Vec<Label> {
        let mut labels = Vec::with_capacity(2 + more.len());
        labels.push(Label::from_static_parts("backend", self.backend));
        labels.extend(more.iter().map(|(key, value)| Label::from_static_parts(key, value)));
        labels.extend(self.name.iter().map(|name| Label::new("lock", name.clone())));
        labels
    }

    /// Counts an acquisition as under way, until it has ended or is dropped.
    pub(crate) fn acquisition(&self) -> Acquisition<'_> {
        let under_way = metrics::gauge!(WAITERS, self.with(&[]));
        under_way.increment(1.0);
        Acquisition { labels: self, under_way, start: Instant::now(), end: ("cancelled", "none") }
    }

    pub(crate) fn hold(&self, held: Duration) {
        metrics::histogram!(HOLD, self.with(&[])).record(held);
    }

    pub(crate) fn renewal_failed(&self) {
        metrics::counter!(RENEWALS_FAILED, self.with(&[])).increment(1);
    }

    pub(crate) fn at_risk(&self) {
        metrics::counter!(AT_RISK, self.with(&[])).increment(1);
    }

    pub(crate) fn lost(&self, reason: &'static str) {
        metrics::counter!(LOST, self.with(&[("reason", reason)])).increment(1);
    }
}

/// One acquisition, from its call to its answer. Dropped without an answer, it was cancelled.
pub(crate) struct Acquisition<'a> {
    labels: &'a Labels,
    under_way: metrics::Gauge,
    start: Instant,
    end: (&'static str, &'static str),
}

impl Acquisition<'_> {
    pub(crate) fn answered<T>(mut self, result: Result<T>) -> Result<T> {
        self.end = match &result {
            Ok(_) => ("granted", "none"),
            Err(error) => ("failed", error.kind().as_str()),
        };
        result
    }
}

impl Drop for Acquisition<'_> {
    fn drop(&mut self) {
        self.under_way.decrement(1.0);
        let (outcome, reason) = self.end;
        let labels = self.labels.with(&[("outcome", outcome), ("reason", reason)]);
        metrics::counter!(ACQUISITIONS, labels).increment(1);
        let waited = Instant::now().since(self.start);
        metrics::histogram!(WAIT, self.labels.with(&[("outcome", outcome)])).record(waited);
    }
}
