//! Starts, freezes, kills and crashes real things for tests. Knows nothing of cerrojo.
//!
//! | | |
//! |---|---|
//! | [`Process`] | a real child: SIGKILL, SIGSTOP, SIGCONT, talk by lines, every wait bounded |
//! | [`PowerLoss`] | what a power loss leaves of a folder's files |
//! | [`ClockSkew`] | a wall clock that is wrong for one process, and changes while it runs |
//! | [`Disk`] | a small filesystem of its own: full, read-only |
//! | [`RedisServer`] | a private `redis-server`: frozen, killed, restarted with and without its data, replicated |
//! | [`Sentinels`] | a master and a replica of that kind, and three sentinels |
//! | [`RedisCluster`] | three masters of that kind that share the slots |
//! | [`PostgresServer`] | a private PostgreSQL: frozen, killed, restarted, replicated, promoted and restored, with TLS or a wrong clock |
//! | [`PgBouncer`] | a pool of connections in front of it |
//! | [`ZooKeeperServer`] | a private ZooKeeper: frozen, killed, restarted with and without its data, with TLS |
//! | [`ZooKeeperEnsemble`] | three servers of that kind that elect a leader |
//! | [`EtcdServer`] | a private `etcd`: frozen, killed, restarted, with TLS and users |
//! | [`EtcdCluster`] | three of that kind that agree on a leader |
//! | [`Certificates`] | a throw-away authority, a server's and a client's certificate |
//! | [`Proxy`] | a TCP proxy in front of a server: delays, holds, drops, cuts, resets, refuses, while it runs |
//! | [`Port`] | a free port that stays one's own while nobody listens on it |
//! | [`Shared`] | a server that several tests use: started by the first, stopped with the last |
//! | [`need`] | whether a test whose program is missing is ignored or fails |
//!
//! Linux only. The shims need a C compiler (`cc`).
#![cfg(target_os = "linux")]

mod certificates;
mod daemon;
mod disk;
mod etcd;
mod need;
mod port;
mod postgres;
mod process;
mod proxy;
mod redis;
mod shared;
mod shim;
mod time;
mod zookeeper;

pub use certificates::Certificates;
pub use disk::Disk;
pub use etcd::{EtcdBuilder, EtcdCluster, EtcdServer};
pub use need::{Need, need};
pub use port::Port;
pub use postgres::{PgBouncer, PgBouncerBuilder, PostgresBackup, PostgresBuilder, PostgresServer};
pub use process::Process;
pub use proxy::{Bytes, Counts, Direction, Proxy};
pub use redis::{RedisBuilder, RedisClient, RedisCluster, RedisServer, Reply, Sentinels};
pub use shared::Shared;
pub use shim::{ClockSkew, PowerLoss};
pub use zookeeper::{ZooKeeperBuilder, ZooKeeperEnsemble, ZooKeeperServer};
