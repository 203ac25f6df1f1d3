//! A Redis Cluster.

use std::{io, time::Duration};

use super::{RedisBuilder, RedisServer};
use crate::{Port, time::await_that};

/// How long the nodes may take to know each other.
const LIMIT: Duration = Duration::from_secs(30);

/// The first and the last slot of each node.
const SLOTS: [(&str, &str); 3] = [("0", "5460"), ("5461", "10922"), ("10923", "16383")];

/// A cluster of three masters that share the slots. With one of them down, the others still serve theirs.
#[derive(Debug)]
pub struct RedisCluster {
    nodes: [RedisServer; 3],
    _buses: [Port; 3],
}

impl RedisCluster {
    /// Starts it, and waits until all nodes say that all is well.
    ///
    /// # Errors
    ///
    /// When a node does not start, or they do not find each other in time.
    pub fn start() -> io::Result<Self> {
        Self::of(&RedisServer::builder())
    }

    /// As [`start`](Self::start), with nodes like this.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start).
    pub fn of(node: &RedisBuilder) -> io::Result<Self> {
        let buses = [Port::reserve()?, Port::reserve()?, Port::reserve()?];
        let [first, second, third] = &buses;
        let nodes = [clustered(node, first)?, clustered(node, second)?, clustered(node, third)?];
        assign(&nodes)?;
        introduce(&nodes, &buses)?;
        nodes.iter().try_for_each(await_ok)?;
        Ok(Self { nodes, _buses: buses })
    }

    /// Its nodes. One that is restarted empty has forgotten the cluster; `FLUSHALL` forgets the keys only.
    #[must_use]
    pub fn nodes(&self) -> &[RedisServer; 3] {
        &self.nodes
    }

    /// The node that serves this key.
    ///
    /// # Errors
    ///
    /// When no node answers.
    pub fn node_of(&self, key: &str) -> io::Result<&RedisServer> {
        let [first, second, third] = &self.nodes;
        let slot = first.command(&["CLUSTER", "KEYSLOT", key])?.to_string();
        match slot.parse::<u16>().map_err(io::Error::other)? {
            0..=5460 => Ok(first),
            5461..=10922 => Ok(second),
            _ => Ok(third),
        }
    }
}

fn clustered(node: &RedisBuilder, bus: &Port) -> io::Result<RedisServer> {
    node.clone()
        .option("cluster-enabled", "yes")
        .option("cluster-port", &bus.number().to_string())
        .option("cluster-node-timeout", "1000")
        .option("cluster-require-full-coverage", "no")
        .start()
}

fn assign(nodes: &[RedisServer]) -> io::Result<()> {
    for (epoch, (node, (first, last))) in nodes.iter().zip(SLOTS).enumerate() {
        node.command(&["CLUSTER", "ADDSLOTSRANGE", first, last])?;
        node.command(&["CLUSTER", "SET-CONFIG-EPOCH", &(epoch + 1).to_string()])?;
    }
    Ok(())
}

fn introduce(nodes: &[RedisServer; 3], buses: &[Port]) -> io::Result<()> {
    let [first, ..] = nodes;
    for (node, bus) in nodes.iter().zip(buses).skip(1) {
        let (port, bus) = (node.port().to_string(), bus.number().to_string());
        first.command(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus])?;
    }
    Ok(())
}

fn await_ok(node: &RedisServer) -> io::Result<()> {
    await_that("a cluster in order", LIMIT, || {
        let said = node.command(&["CLUSTER", "INFO"])?.to_string();
        let wanted = ["cluster_state:ok", "cluster_slots_ok:16384", "cluster_known_nodes:3"];
        Ok(wanted.iter().all(|line| said.lines().any(|it| it == *line)).then_some(()))
    })
}
