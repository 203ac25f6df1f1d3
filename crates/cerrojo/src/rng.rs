//! The only reader of randomness.
#![allow(clippy::disallowed_methods)]

use std::time::Duration;

/// Sixteen random bytes from a cryptographic generator.
pub(crate) fn id() -> [u8; 16] {
    rand::random()
}

/// A random length between half of `base` and all of it.
pub(crate) fn jitter(base: Duration) -> Duration {
    base.mul_f64(rand::random_range(0.5..=1.0))
}
