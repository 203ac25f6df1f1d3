//! The stores.

#[cfg(all(feature = "local", target_os = "linux"))]
pub mod local;
pub mod memory;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(feature = "redis")]
pub mod redlock;
