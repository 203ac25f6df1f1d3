//! Private Redis servers.

mod builder;
mod client;
mod cluster;
mod sentinel;
mod server;

pub use builder::RedisBuilder;
pub use client::{RedisClient, Reply};
pub use cluster::RedisCluster;
pub use sentinel::Sentinels;
pub use server::RedisServer;

/// The user by which the testbed speaks to its servers and they to each other, and its password: so that a test may
/// give the default user any password or none.
const TESTBED: (&str, &str) = ("testbed", "testbed");
