//! Private etcd servers, alone and three together.

mod builder;
mod cluster;
mod ctl;
mod http;
mod server;

pub use builder::EtcdBuilder;
pub use cluster::EtcdCluster;
pub use server::EtcdServer;
