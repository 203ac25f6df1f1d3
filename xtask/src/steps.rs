//! Steps with their times, up to the first that fails.

use std::time::{Duration, Instant};

use crate::Outcome;

/// The steps done so far.
#[derive(Default)]
pub(crate) struct Steps(Vec<Done>);

struct Done {
    what: &'static str,
    took: Duration,
    outcome: Outcome,
}

impl Steps {
    /// Does one step and says how long it took. After a step that failed no other is done.
    pub(crate) fn step(&mut self, what: &'static str, work: impl FnOnce() -> Outcome) -> &mut Self {
        if self.failed() {
            return self;
        }
        println!("\n== {what}");
        let start = now();
        let outcome = work();
        let done = Done { what, took: start.elapsed(), outcome };
        println!("== {}", done.line());
        self.0.push(done);
        self
    }

    /// Prints the table of all steps; the error is the failed step's.
    pub(crate) fn finish(&mut self) -> Outcome {
        println!("\n{}", self.table());
        self.0.pop().map_or(Ok(()), |last| last.outcome.map_err(|e| format!("{}: {e}", last.what)))
    }

    fn failed(&self) -> bool {
        self.0.last().is_some_and(|last| last.outcome.is_err())
    }

    fn table(&self) -> String {
        self.0.iter().map(|done| done.line() + "\n").collect()
    }
}

impl Done {
    fn line(&self) -> String {
        let outcome = if self.outcome.is_ok() { "ok" } else { "FAILED" };
        format!("{:<44} {:>8.1} s  {outcome}", self.what, self.took.as_secs_f64())
    }
}

#[allow(clippy::disallowed_methods, reason = "shown to people; nothing is decided by it")]
fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_done_after_a_failure() {
        let mut steps = Steps::default();
        let mut third = false;
        steps.step("one", || Ok(())).step("two", || Err("broken".to_owned())).step("three", || {
            third = true;
            Ok(())
        });
        assert!(steps.table().contains("FAILED"));
        assert_eq!(steps.finish(), Err("two: broken".to_owned()));
        assert!(!third);
    }

    #[test]
    fn all_good_steps_are_good() {
        assert_eq!(Steps::default().step("one", || Ok(())).finish(), Ok(()));
    }
}
