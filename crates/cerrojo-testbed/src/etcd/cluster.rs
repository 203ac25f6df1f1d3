//! Three servers that agree.

use std::{io, process::Command, time::Duration};

use super::{
    EtcdBuilder, EtcdServer, ctl,
    server::{Ports, Status},
};
use crate::time::await_that;

/// How long agreement on a leader may take.
const LIMIT: Duration = Duration::from_secs(30);

const MAJORITY: usize = 2;

/// A cluster of three servers. It serves as long as two of them run.
#[derive(Debug)]
pub struct EtcdCluster {
    nodes: [EtcdServer; 3],
}

impl EtcdCluster {
    /// Starts it, and waits until all nodes answer.
    ///
    /// # Errors
    ///
    /// As [`EtcdBuilder::start`].
    pub fn start() -> io::Result<Self> {
        Self::of(&EtcdServer::builder())
    }

    /// As [`start`](Self::start), with nodes like this.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start).
    pub fn of(node: &EtcdBuilder) -> io::Result<Self> {
        let ports = [Ports::reserve()?, Ports::reserve()?, Ports::reserve()?];
        let members: Vec<_> = ports.iter().enumerate().map(|(at, it)| it.member(at)).collect();
        let members = members.join(",");
        let [first, second, third] = ports;
        let first = node.member(0, first, &members)?;
        let nodes = [first, node.member(1, second, &members)?, node.member(2, third, &members)?];
        nodes.iter().try_for_each(enter)?;
        nodes.iter().try_for_each(EtcdServer::await_health)?;
        let cluster = Self { nodes };
        node.close(|words| cluster.etcdctl(words))?;
        Ok(cluster)
    }

    /// Its nodes, to be frozen, killed, stopped and restarted.
    #[must_use]
    pub fn nodes(&self) -> &[EtcdServer; 3] {
        &self.nodes
    }

    /// The addresses of its nodes for clients, in order.
    #[must_use]
    pub fn endpoints(&self) -> [String; 3] {
        self.nodes.each_ref().map(EtcdServer::address)
    }

    /// Which node leads, by its place in [`nodes`](Self::nodes): waits until a majority says so, and itself too.
    ///
    /// # Errors
    ///
    /// When there is none within 30 s.
    pub fn leader(&self) -> io::Result<usize> {
        await_that("a leader", LIMIT, || Ok(self.agreed()))
    }

    /// As [`leader`](Self::leader), but waits until it is another node than this one.
    ///
    /// # Errors
    ///
    /// When there is none within 30 s.
    pub fn await_leader_other_than(&self, former: usize) -> io::Result<usize> {
        let other = || self.agreed().filter(|leader| *leader != former);
        await_that("another leader", LIMIT, || Ok(other()))
    }

    /// As [`EtcdServer::etcdctl`], at whichever node answers.
    ///
    /// # Errors
    ///
    /// As [`EtcdServer::etcdctl`].
    pub fn etcdctl(&self, words: &[&str]) -> io::Result<String> {
        ctl::run(&self.etcdctl_command(words)?)
    }

    /// As [`EtcdServer::etcdctl_command`], at whichever node answers.
    ///
    /// # Errors
    ///
    /// As [`EtcdServer::etcdctl_command`].
    pub fn etcdctl_command(&self, words: &[&str]) -> io::Result<Command> {
        let [first, ..] = &self.nodes;
        let all = self.nodes.each_ref().map(EtcdServer::testbed_address).join(",");
        first.etcdctl_command(&[&["--endpoints", &all], words].concat())
    }

    /// Starts all nodes again with their data; those that run are stopped first. Returns once all serve clients.
    ///
    /// # Errors
    ///
    /// As [`EtcdServer::restart`].
    pub fn restart(&self) -> io::Result<()> {
        self.nodes.iter().try_for_each(EtcdServer::stop)?;
        self.nodes.iter().try_for_each(EtcdServer::spawn)?;
        self.nodes.iter().try_for_each(EtcdServer::await_health)
    }

    /// The leader of the newest term, if it and a majority of all nodes know it. A former leader that has heard of
    /// nothing is of an older term.
    fn agreed(&self) -> Option<usize> {
        let said = self.nodes.each_ref().map(|node| node.status().ok());
        let term = said.iter().flatten().map(|it| it.term).max()?;
        let names = |it: &Status, leader| it.term == term && it.leader == Some(leader);
        said.iter().position(|node| {
            let Some(node) = node.as_ref().filter(|it| names(it, it.member)) else { return false };
            said.iter().flatten().filter(|it| names(it, node.member)).count() >= MAJORITY
        })
    }
}

/// One after the other: one that finds its peers listening but not yet answering waits for a second for each.
fn enter(node: &EtcdServer) -> io::Result<()> {
    node.spawn()?;
    node.await_peer()
}
