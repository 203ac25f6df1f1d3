//! The stores.

#[cfg(all(feature = "local", target_os = "linux"))]
pub mod local;
#[cfg(all(feature = "local", not(target_os = "linux")))]
#[path = "backend/local_elsewhere.rs"]
pub mod local;
pub mod memory;
