//! Private ZooKeeper servers.

mod builder;
mod ensemble;
mod java;
mod server;

pub use builder::ZooKeeperBuilder;
pub use ensemble::ZooKeeperEnsemble;
pub use server::ZooKeeperServer;
