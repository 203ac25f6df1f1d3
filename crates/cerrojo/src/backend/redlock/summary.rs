//! Why a round of votes ended as it did.

use std::{error::Error, fmt};

use crate::clock::Instant;

/// Why a request was not granted; the source of the error that says so.
///
/// RedLock.NET's `RedLockStatus` and `RedLockInstanceSummary` in one, with each failure's text.
///
/// ```no_run
/// use std::error::Error;
///
/// use cerrojo::{Locker, backend::redlock::{Redlock, Summary}};
///
/// # async fn example() -> cerrojo::Result<()> {
/// let nodes = ["redis://a.example", "redis://b.example", "redis://c.example"];
/// let locks = Locker::new(Redlock::builder(nodes).connect().await?);
/// if let Err(error) = locks.try_acquire("nightly-report").await {
///     let summary = error.source().and_then(|source| source.downcast_ref::<Summary>());
///     if let Some(Summary { status, acquired, conflicted, failures, .. }) = summary {
///         println!("{status:?}: {acquired} acquired, {conflicted} conflicted");
///         for failure in failures {
///             println!("{}: {}", failure.node, failure.why);
///         }
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// What it came to.
    pub status: Status,
    /// How many nodes granted it.
    pub acquired: usize,
    /// At how many nodes somebody else had it.
    pub conflicted: usize,
    /// The nodes that did not vote, and why.
    pub failures: Vec<Failure>,
}

/// What a round that failed came to.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// A majority voted, but not for this request: somebody else has the lock, or nobody has a majority.
    Conflicted,
    /// No majority of the nodes voted.
    NoQuorum,
    /// A majority granted it, but too slowly: what was left of the validity is too short to be used.
    Expired,
}

/// A node that did not vote.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Its address.
    pub node: String,
    /// Why, in words.
    pub why: String,
    /// Until when it has no vote, since it may have been restarted and have forgotten what it granted.
    pub quarantined_until: Option<Instant>,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { status, acquired, conflicted, failures } = self;
        let what = match status {
            Status::Conflicted => "conflicted",
            Status::NoQuorum => "no quorum",
            Status::Expired => "expired",
        };
        let failed = failures.len();
        write!(f, "{what}: acquired {acquired}, conflicted {conflicted}, failed {failed}")?;
        failures.iter().try_for_each(|failure| write!(f, "; {}: {}", failure.node, failure.why))
    }
}

impl Error for Summary {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_how_many_and_why() {
        let failure =
            Failure { node: "h:1".to_owned(), why: "refused".to_owned(), quarantined_until: None };
        let summary = Summary {
            status: Status::NoQuorum,
            acquired: 1,
            conflicted: 0,
            failures: vec![failure],
        };
        assert_eq!(
            summary.to_string(),
            "no quorum: acquired 1, conflicted 0, failed 1; h:1: refused"
        );
    }
}
