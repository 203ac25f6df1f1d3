//! What is said to the operator while something runs.

use std::{
    fmt::{Debug, Write},
    future::Future,
    sync::{Arc, Mutex},
};

use libtest_mimic::Failed;
use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
};

use crate::site::{Outcome, bounded};

/// Writes warnings down.
struct Clerk(Heard);

/// One event as text.
struct Line<'a>(&'a mut String);

impl Visit for Line<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, "{field}={value:?} ").unwrap();
    }
}

impl Subscriber for Clerk {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("cerrojo") && *metadata.level() <= Level::WARN
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        event.record(&mut Line(&mut self.0.lock().unwrap()));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Has all that is said reach those who write it down: what is said first where nobody listens may be left out from then on.
pub(crate) fn prepare() {
    drop(tracing::subscriber::set_global_default(Clerk(Arc::default())));
}

/// What was said so far.
pub(crate) type Heard = Arc<Mutex<String>>;

/// The warnings while `work` runs, with all of its tasks on this thread; it can read along.
pub(crate) fn warnings<F: Future<Output = Outcome>>(
    work: impl FnOnce(Heard) -> F,
) -> Result<String, Failed> {
    let heard = Heard::default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let clerk = Clerk(Arc::clone(&heard));
    tracing::subscriber::with_default(clerk, || {
        runtime.block_on(bounded(work(Arc::clone(&heard))))
    })?;
    let heard = heard.lock().unwrap().clone();
    Ok(heard)
}
