//! What a holder shows to a resource that asks the store itself.

use crate::{FencingToken, LockName, OwnerId, StoreId};

/// A fenced grant, by whom and for what: [`FencedGuard::claim`](crate::FencedGuard::claim).
///
/// It has the owner id in it, which `Debug` shows only the beginning of.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// What is locked.
    pub name: LockName,
    /// Who holds it. A secret.
    pub owner: OwnerId,
    /// By which token.
    pub token: FencingToken,
    /// Who counted it.
    pub store: StoreId,
}
