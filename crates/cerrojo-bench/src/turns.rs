//! Taking turns on one lock, and how long it takes from one holder to the next.

use std::{fs::File, str::FromStr, time::Duration};

use cerrojo::{Instant, clock};

use crate::{
    Result,
    harness::Played,
    store::{self, AnyFenced},
};

/// The lock that all contend for.
pub(crate) const NAME: &str = "bench/one";

/// Long enough that all others wait when it ends.
const HOLD: Duration = Duration::from_millis(1);

/// Where turns are taken.
pub(crate) enum Place {
    Flock(File),
    Lock(AnyFenced),
}

/// One hold as its holder saw it, in nanoseconds of the boot-time clock, which all processes share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Hold {
    token: u64,
    acquired: u64,
    /// Just before release was called.
    released: u64,
}

impl Place {
    /// `flock:FILE`, or a store's URL.
    pub(crate) async fn open(text: &str) -> Result<Self> {
        match text.strip_prefix("flock:") {
            Some(file) => Ok(Self::Flock(File::create(file)?)),
            None => Ok(Self::Lock(store::open(text).await?)),
        }
    }

    pub(crate) async fn hold(&self) -> Result<Hold> {
        match self {
            Self::Flock(file) => hold_flock(file).await,
            Self::Lock(locks) => hold_lock(locks).await,
        }
    }
}

/// Blocks the thread: for a process that does nothing else.
async fn hold_flock(file: &File) -> Result<Hold> {
    file.lock()?;
    let (acquired, released) = hold().await;
    file.unlock()?;
    Ok(Hold { token: 0, acquired, released })
}

pub(crate) async fn hold_lock(locks: &AnyFenced) -> Result<Hold> {
    let guard = locks.acquire(NAME).await?;
    let token = guard.token().get();
    let (acquired, released) = hold().await;
    guard.release().await?;
    Ok(Hold { token, acquired, released })
}

async fn hold() -> (u64, u64) {
    let acquired = Instant::now().as_nanos();
    clock::sleep(HOLD).await;
    (acquired, Instant::now().as_nanos())
}

impl std::fmt::Display for Hold {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} {}", self.token, self.acquired, self.released)
    }
}

impl FromStr for Hold {
    type Err = Box<dyn std::error::Error + Send + Sync>;

    fn from_str(line: &str) -> Result<Self> {
        let numbers = line.split(' ').map(str::parse).collect::<Result<Vec<u64>, _>>()?;
        match *numbers.as_slice() {
            [token, acquired, released] => Ok(Self { token, acquired, released }),
            _ => Err(format!("not a hold: {line}").into()),
        }
    }
}

/// What the holds of all holders show, each with its holder. The first `warm_up` hand-overs do not count.
pub(crate) fn played(mut holds: Vec<(u32, Hold)>, warm_up: usize) -> Played {
    holds.sort_by_key(|(_, hold)| hold.acquired);
    let (mut waits, mut violations) = (Vec::new(), Vec::new());
    let pairs = holds.iter().zip(holds.iter().skip(1));
    for ((holder, hold), (next_holder, next)) in pairs {
        violations.extend(unsafe_pair(hold, next));
        if holder != next_holder {
            waits.push(next.acquired.saturating_sub(hold.released) as f64 / 1e6);
        }
    }
    let passed_on = 100.0 * waits.len() as f64 / holds.len().saturating_sub(1).max(1) as f64;
    let waits = waits.into_iter().skip(warm_up).collect();
    Played::default()
        .figure("release to next holder", "ms", waits)
        .figure("passed on to another", "%", vec![passed_on])
        .violations(violations)
}

fn unsafe_pair(hold: &Hold, next: &Hold) -> Option<String> {
    if next.acquired < hold.released {
        return Some(format!("two holders at once: {hold:?} and {next:?}"));
    }
    let fenced = hold.token != 0;
    (fenced && next.token <= hold.token)
        .then(|| format!("the token did not rise: {hold:?} and {next:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hold(token: u64, acquired: u64, released: u64) -> Hold {
        Hold { token, acquired, released }
    }

    #[test]
    fn overlap_and_falling_tokens_are_seen() {
        let good = hold(1, 10, 20);
        assert_eq!(unsafe_pair(&good, &hold(2, 20, 30)), None);
        assert!(unsafe_pair(&good, &hold(2, 19, 30)).is_some());
        assert!(unsafe_pair(&good, &hold(1, 20, 30)).is_some());
        assert_eq!(unsafe_pair(&hold(0, 10, 20), &hold(0, 20, 30)), None);
    }

    #[test]
    fn a_hold_goes_through_a_line() {
        let one = hold(7, 8, 9);
        assert_eq!(one.to_string().parse::<Hold>().unwrap(), one);
        assert!("7 8".parse::<Hold>().is_err());
    }
}
