//! Who asks: random ids of acquisitions and of stores.

use std::{fmt, str::FromStr};

/// Why a text is no id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an id is 32 hexadecimal digits")]
pub struct InvalidId;

/// The 128-bit random id of one acquisition, checked by the store on every renewal and release.
///
/// Whoever knows it can renew and release, so `Debug` and [`OwnerId::short`] show its first eight digits
/// only. [`OwnerId::to_hex`] is the whole of it, for a store to keep.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct OwnerId([u8; 16]);

/// The random id that a fenced store gets when it is created.
///
/// Tokens of different stores say nothing about each other: a fence remembers the store beside the token.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct StoreId([u8; 16]);

impl OwnerId {
    /// An id that nobody has had before.
    #[must_use]
    pub fn random() -> Self {
        Self(crate::rng::id())
    }

    /// The id as a store keeps it.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The id as a store keeps it.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// All 32 digits: a secret, not for logs.
    #[must_use]
    pub fn to_hex(&self) -> String {
        hex(&self.0)
    }

    /// The first eight digits: enough to tell owners apart, not enough to act as one.
    #[must_use]
    pub fn short(&self) -> String {
        self.to_hex().chars().take(8).collect()
    }
}

impl StoreId {
    /// An id for a store that is being created.
    #[must_use]
    pub fn random() -> Self {
        Self(crate::rng::id())
    }

    /// The id as a store keeps it.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The id as a store keeps it.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl FromStr for OwnerId {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        parse(text).map(Self)
    }
}

impl FromStr for StoreId {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        parse(text).map(Self)
    }
}

impl fmt::Debug for OwnerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OwnerId({}..)", self.short())
    }
}

impl fmt::Display for StoreId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

impl fmt::Debug for StoreId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoreId({self})")
    }
}

fn hex(bytes: &[u8; 16]) -> String {
    format!("{:032x}", u128::from_be_bytes(*bytes))
}

fn parse(text: &str) -> Result<[u8; 16], InvalidId> {
    if text.len() != 32 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Err(InvalidId);
    }
    u128::from_str_radix(text, 16).map(u128::to_be_bytes).map_err(|_| InvalidId)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_never_print_whole() {
        let owner = OwnerId::random();
        assert!(!format!("{owner:?}").contains(&owner.to_hex()));
        assert_eq!(owner.short().len(), 8);
    }

    #[test]
    fn hex_goes_both_ways() {
        let owner = OwnerId::from_bytes([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 255]);
        assert_eq!(owner.to_hex().parse(), Ok(owner));
        for text in ["", "+0000000000000000000000000000001", "zz", &"0".repeat(33)] {
            assert_eq!(text.parse::<OwnerId>(), Err(InvalidId));
        }
    }

    #[test]
    fn random_ids_differ() {
        assert_ne!(OwnerId::random(), OwnerId::random());
    }
}
