//! What the comparisons share with the tests of mixed fleets: processes that take turns on one lock, each with a lock library of its own.

pub mod fleet;
pub mod peer;
pub mod process;

/// What went wrong is told, not handled.
pub type Result<T, E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;
