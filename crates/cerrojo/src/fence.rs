//! The resource's side: refuses what a newer holder has overtaken.
//!
//! A lease alone cannot exclude: its holder may be frozen past the TTL, or its write late in the network. So
//! the resource remembers the greatest token it has seen and refuses smaller ones (Kleppmann, "How to do
//! distributed locking", 2016).
//!
//! **Admit at the first access under a grant, reads included.** A fence that only writes raise loses updates:
//! holder 34 reads, the late write of holder 33 still passes, and 34 then writes over it from what it read.
//!
//! [`Fence`] is the check itself. Ready for use are [a file](mod@file), [a log](mod@log), [a fence alone](mod@state) whose
//! state is a file, for what is guarded elsewhere, and with the feature `postgres` a table for what is kept in PostgreSQL.

use std::{num::NonZeroU64, str::FromStr};

use crate::FencingToken;

mod error;
pub mod file;
pub mod log;
#[cfg(feature = "postgres")]
pub mod postgres;
mod replace;
pub mod state;
mod turn;

pub use error::FileError;

/// A token as a resource received it: a claim, not yet believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PresentedToken(NonZeroU64);

/// Why a number or a text cannot be a token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a fencing token is a number from 1 to {max}, not `{0}`", max = FencingToken::MAX)]
pub struct NotAToken(String);

/// The presented token is smaller than one that was admitted before: its holder has been overtaken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("stale: token {presented} was presented, {highest} has been admitted already")]
pub struct Stale {
    /// The token that was refused.
    pub presented: u64,
    /// The greatest token that was admitted.
    pub highest: u64,
}

/// The check at one resource: remembers the greatest token that it has admitted.
///
/// The state must be as durable as the resource, and be changed in one atomic step with the access it admits.
/// Tokens of different stores, or of different lock names, need fences of their own.
///
/// ```
/// # use cerrojo::fence::{Fence, PresentedToken};
/// let mut fence = Fence::default();
/// fence.admit(PresentedToken::try_from(34)?)?;
/// assert!(fence.admit(PresentedToken::try_from(33)?).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fence {
    highest: u64,
}

impl Fence {
    /// A fence that goes on from where one stood: `highest` is what [`Fence::highest`] said, 0 for none.
    #[must_use]
    pub fn resume(highest: u64) -> Self {
        Self { highest }
    }

    /// The greatest token admitted, 0 for none: what has to be stored.
    #[must_use]
    pub fn highest(&self) -> u64 {
        self.highest
    }

    /// Admits a token that is not smaller than the greatest seen, and remembers it.
    ///
    /// Call it at the first access under a grant, also when that only reads.
    ///
    /// # Errors
    ///
    /// [`Stale`]: do nothing for this holder.
    pub fn admit(&mut self, token: impl Into<PresentedToken>) -> Result<(), Stale> {
        let presented = token.into().get();
        if presented < self.highest {
            return Err(Stale { presented, highest: self.highest });
        }
        self.highest = presented;
        Ok(())
    }
}

impl PresentedToken {
    /// The number that was presented.
    #[must_use]
    pub fn get(self) -> u64 {
        self.0.get()
    }
}

impl From<FencingToken> for PresentedToken {
    fn from(token: FencingToken) -> Self {
        Self(NonZeroU64::MIN.saturating_add(token.get() - 1))
    }
}

impl TryFrom<u64> for PresentedToken {
    type Error = NotAToken;

    fn try_from(number: u64) -> Result<Self, NotAToken> {
        let token = NonZeroU64::new(number).filter(|token| token.get() <= FencingToken::MAX);
        token.map(Self).ok_or_else(|| NotAToken(number.to_string()))
    }
}

/// As [`FencingToken`] displays: digits without a sign or leading zeros.
impl FromStr for PresentedToken {
    type Err = NotAToken;

    fn from_str(text: &str) -> Result<Self, NotAToken> {
        let plain = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
        let number = text.parse().ok().filter(|_| plain);
        number.and_then(|number: u64| number.try_into().ok()).ok_or_else(|| NotAToken(text.into()))
    }
}

impl std::fmt::Display for PresentedToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(number: u64) -> PresentedToken {
        number.try_into().unwrap()
    }

    #[test]
    fn a_smaller_token_is_refused_and_changes_nothing() {
        let mut fence = Fence::default();
        for number in [1, 1, 5, 5, FencingToken::MAX] {
            fence.admit(token(number)).unwrap();
        }
        let stale = Stale { presented: 5, highest: FencingToken::MAX };
        assert_eq!(fence.admit(token(5)), Err(stale));
        assert_eq!(fence.highest(), FencingToken::MAX);
    }

    #[test]
    fn a_read_raises_the_fence() {
        let (mut fence, mut value) = (Fence::default(), 10);
        let mut access = |number| fence.admit(token(number));
        access(33).unwrap();
        let read_by_33 = value;
        access(34).unwrap();
        let read_by_34 = value;
        assert!(access(33).is_err(), "the late write of 33, from {read_by_33}, is refused");
        access(34).unwrap();
        value = read_by_34 + 1;
        assert_eq!(value, 11);
    }

    #[test]
    fn numbers_that_are_no_tokens_are_refused() {
        for number in [0, FencingToken::MAX + 1, u64::MAX] {
            assert_eq!(PresentedToken::try_from(number), Err(NotAToken(number.to_string())));
        }
    }

    #[test]
    fn a_token_is_read_as_it_is_displayed_and_in_no_other_way() {
        for number in [1, 10, FencingToken::MAX] {
            assert_eq!(token(number).to_string().parse(), Ok(token(number)));
        }
        for text in ["", "0", "007", "+7", "-7", " 7", "7 ", "7.0", "0x7", "9223372036854775808"] {
            assert_eq!(text.parse::<PresentedToken>(), Err(NotAToken(text.into())));
        }
    }

    #[test]
    fn a_fence_resumes_where_it_stood() {
        assert!(Fence::resume(7).admit(token(6)).is_err());
        assert!(Fence::resume(7).admit(token(7)).is_ok());
    }
}
