//! What a grant carries: a fencing token, or nothing.

use std::{fmt::Debug, num::NonZeroU64};

use crate::owner::StoreId;

mod sealed {
    pub trait Sealed {}
}

/// What kind of promise a lock makes. Exactly two kinds exist: [`FencingToken`] and [`NoToken`].
pub trait Token: sealed::Sealed + Copy + Debug + Send + Sync + Unpin + 'static {
    /// What the store says with each grant of this kind.
    type Grant: Copy + Debug + Send + Sync + Unpin + 'static;

    /// The number in the grant, where there is one: for displays and logs.
    #[doc(hidden)]
    fn number(grant: &Self::Grant) -> Option<u64>;
}

/// A number, greater than every token that the same store ever granted for the same lock name.
///
/// It is minted from the store's own ordering of grants and from nothing else: there is no constructor.
/// Hand it to the resource with every access; a [`Fence`](crate::fence::Fence) there refuses what is stale.
///
/// ```compile_fail,E0423
/// let made_up = cerrojo::FencingToken(std::num::NonZeroU64::MIN);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FencingToken(NonZeroU64);

/// No token: the grant is good for efficiency only.
///
/// ```compile_fail,E0599
/// fn token(guard: cerrojo::ApproximateGuard) -> u64 {
///     guard.token().get()
/// }
/// ```
/// ```compile_fail,E0308
/// fn write(_: &cerrojo::FencedGuard) {}
/// fn run(guard: cerrojo::ApproximateGuard) {
///     write(&guard)
/// }
/// ```
/// ```
/// fn token(guard: cerrojo::FencedGuard) -> u64 {
///     guard.token().get()
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoToken(());

/// What a fenced store says with each grant: the number it ordered the grant by, and its own id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FencedGrant {
    /// Greater than every number granted before for this name; at most [`FencingToken::MAX`].
    pub number: NonZeroU64,
    /// The id of the store that counted.
    pub store: StoreId,
}

impl FencingToken {
    /// The largest token, so that one fits a signed 64-bit column anywhere.
    pub const MAX: u64 = i64::MAX.unsigned_abs();

    /// Private to the core: a token exists because a store granted it.
    pub(crate) fn mint(grant: &FencedGrant) -> Self {
        Self(grant.number)
    }

    /// The token as a number, from 1 to [`FencingToken::MAX`].
    #[must_use]
    pub fn get(self) -> u64 {
        self.0.get()
    }
}

impl std::fmt::Display for FencingToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(&self.0, f)
    }
}

impl sealed::Sealed for FencingToken {}
impl sealed::Sealed for NoToken {}

impl Token for FencingToken {
    type Grant = FencedGrant;

    fn number(grant: &FencedGrant) -> Option<u64> {
        Some(grant.number.get())
    }
}

impl Token for NoToken {
    type Grant = ();

    fn number((): &()) -> Option<u64> {
        None
    }
}
