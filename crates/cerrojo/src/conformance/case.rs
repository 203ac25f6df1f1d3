//! Cases, and how one becomes a trial.

use std::{
    error::Error, fmt, future::Future, panic::Location, pin::Pin, sync::mpsc, time::Duration,
};

use libtest_mimic::{Failed, Trial};
use tokio::runtime::{Builder, Runtime};

use super::{Capabilities, Capability, Harness, cases, child, site::Site};

/// The longest that a case may take, whatever is broken.
const CASE_LIMIT: Duration = Duration::from_secs(120);
/// The longest that a case's runtime may take to end.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(2);

/// What a case found.
pub(crate) type Verdict = Result<(), Failure>;

/// Why a case failed, and where.
pub(crate) struct Failure(String);

impl Failure {
    #[track_caller]
    pub(crate) fn new(why: impl fmt::Display) -> Self {
        let place = Location::caller();
        Self(format!("{}:{}: {why}", place.file(), place.line()))
    }
}

impl<E: Error> From<E> for Failure {
    #[track_caller]
    fn from(error: E) -> Self {
        let mut why = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            let cause_said = cause.to_string();
            if !why.contains(&cause_said) {
                why = format!("{why}: {cause_said}");
            }
            source = cause.source();
        }
        Self::new(why)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Ends the case with a failure unless the condition holds.
macro_rules! check {
    ($condition:expr, $($why:tt)+) => {
        if !$condition {
            return Err($crate::conformance::case::Failure::new(format!($($why)+)));
        }
    };
}
pub(crate) use check;

/// What a case runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flavor {
    /// A multi-thread runtime of two workers.
    Threads,
    /// A current-thread runtime.
    OneThread,
}

type Run<H> = fn(Site<H>) -> Pin<Box<dyn Future<Output = Verdict>>>;

/// One promise and how to see that it is kept.
pub(crate) struct Case<H: Harness> {
    pub(crate) name: String,
    needs: &'static [Capability],
    run: Run<H>,
    flavor: Flavor,
    isolated: bool,
}

impl<H: Harness> Clone for Case<H> {
    fn clone(&self) -> Self {
        Self { name: self.name.clone(), ..*self }
    }
}

impl<H: Harness> Case<H> {
    pub(crate) fn new(name: &str, needs: &'static [Capability], run: Run<H>) -> Self {
        let flavor = Flavor::Threads;
        Self { name: name.to_owned(), needs, run, flavor, isolated: false }
    }

    /// Two cases: this one, and the same on one thread.
    pub(crate) fn on_both_runtimes(self) -> [Self; 2] {
        let name = format!("{}_on_one_thread", self.name);
        [self.clone(), Self { name, flavor: Flavor::OneThread, ..self }]
    }

    /// In a process of its own, which has its descriptors for itself.
    pub(crate) fn isolated(self) -> Self {
        Self { isolated: true, ..self }
    }

    fn wants(&self, can: &Capabilities) -> Option<Capability> {
        self.needs.iter().copied().find(|need| !can.has(*need))
    }

    /// Runs the case in this process.
    pub(crate) fn run_here(&self, harness: H) -> Verdict {
        let runtime = self.runtime()?;
        let verdict = runtime.block_on(async { (self.run)(Site::new(harness).await?).await });
        runtime.shutdown_timeout(SHUTDOWN_LIMIT);
        verdict
    }

    fn runtime(&self) -> std::io::Result<Runtime> {
        match self.flavor {
            Flavor::Threads => Builder::new_multi_thread().worker_threads(2).enable_all().build(),
            Flavor::OneThread => Builder::new_current_thread().enable_all().build(),
        }
    }

    fn run(self, harness: H) -> Verdict {
        if self.isolated {
            child::run_case(&harness, &self.name, CASE_LIMIT)
        } else {
            supervised(move || self.run_here(harness))
        }
    }
}

/// Runs a case on a thread of its own, and gives it up when it does not end.
fn supervised(run: impl FnOnce() -> Verdict + Send + 'static) -> Verdict {
    let (done, verdict) = mpsc::channel();
    let thread = std::thread::Builder::new().spawn(move || drop(done.send(run())))?;
    match verdict.recv_timeout(CASE_LIMIT) {
        Ok(verdict) => verdict,
        Err(mpsc::RecvTimeoutError::Timeout) => {
            Err(Failure::new(format!("did not end within {CASE_LIMIT:?}")))
        }
        // The message of the panic is on standard error already.
        Err(mpsc::RecvTimeoutError::Disconnected) => {
            drop(thread.join());
            Err(Failure::new("panicked"))
        }
    }
}

/// One trial for each case that the harness's backend can be asked, named `harness::case`.
pub fn trials<H: Harness>(harness: &H) -> Vec<Trial> {
    let can = harness.capabilities();
    let cases = cases::all::<H>().into_iter().filter(|case| case.wants(&can).is_none());
    cases.map(|case| trial(harness.clone(), case)).collect()
}

fn trial<H: Harness>(harness: H, case: Case<H>) -> Trial {
    let name = format!("{}::{}", harness.name(), case.name);
    Trial::test(name, move || case.run(harness).map_err(Failed::from))
}

/// A table of the cases that [`trials`] leaves out for this harness, and of the capability that each needs.
#[must_use]
pub fn left_out<H: Harness>(harness: &H) -> String {
    let (name, can) = (harness.name(), harness.capabilities());
    let mut table = String::new();
    for case in cases::all::<H>() {
        if let Some(need) = case.wants(&can) {
            table += &format!("left out: {name:<16} needs {need:<16} {}\n", case.name);
        }
    }
    table
}
