//! Private Redis servers.

mod client;
mod server;

pub use client::{RedisClient, Reply};
pub use server::{RedisBuilder, RedisServer};
