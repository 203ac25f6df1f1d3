//! Servers that agree by majority.

use std::{io, iter::zip};

use super::{ZooKeeperBuilder, ZooKeeperServer, server::Role};
use crate::{Port, daemon::LIMIT, time::await_that};

/// The ports at which a member speaks to the others.
#[derive(Debug)]
struct Peer {
    quorum: Port,
    election: Port,
}

/// Three ZooKeeper servers, of which two are a majority. A member is left by the others when it has said nothing for two
/// seconds, unless options say otherwise (`tickTime` times `syncLimit`).
#[derive(Debug)]
pub struct ZooKeeperEnsemble {
    nodes: [ZooKeeperServer; 3],
    _peers: [Peer; 3],
}

impl ZooKeeperEnsemble {
    /// Starts it, and waits until all members serve requests.
    ///
    /// # Errors
    ///
    /// When a member does not start, or they do not agree in time.
    pub fn start() -> io::Result<Self> {
        Self::of(&ZooKeeperServer::builder())
    }

    /// As [`start`](Self::start), with members like this.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start).
    pub fn of(member: &ZooKeeperBuilder) -> io::Result<Self> {
        let peers = [Peer::reserve()?, Peer::reserve()?, Peer::reserve()?];
        let member = zip(1.., &peers).fold(member.clone(), introduced);
        let prepare = |id| member.prepare(Role::Member(id));
        let nodes = [prepare(1)?, prepare(2)?, prepare(3)?];
        nodes.iter().try_for_each(ZooKeeperServer::spawn)?;
        nodes.iter().try_for_each(ZooKeeperServer::await_up)?;
        let ensemble = Self { nodes, _peers: peers };
        ensemble.await_complete()?;
        Ok(ensemble)
    }

    /// Its members.
    #[must_use]
    pub fn nodes(&self) -> &[ZooKeeperServer; 3] {
        &self.nodes
    }

    /// The addresses of its members, in order.
    #[must_use]
    pub fn endpoints(&self) -> [String; 3] {
        self.nodes.each_ref().map(ZooKeeperServer::address)
    }

    /// Which member leads, by its place in [`nodes`](Self::nodes); waits until one does and another follows.
    ///
    /// # Errors
    ///
    /// When none does within a minute.
    pub fn leader(&self) -> io::Result<usize> {
        await_that("a leader", LIMIT, || Ok(self.look()))
    }

    /// As [`leader`](Self::leader), but waits until it is another one than `former`.
    ///
    /// # Errors
    ///
    /// As [`leader`](Self::leader).
    pub fn await_leader_other_than(&self, former: usize) -> io::Result<usize> {
        await_that("another leader", LIMIT, || Ok(self.look().filter(|it| *it != former)))
    }

    /// Waits until one member leads and both others follow.
    ///
    /// # Errors
    ///
    /// When they do not within a minute.
    pub fn await_complete(&self) -> io::Result<()> {
        await_that("a leader and two followers", LIMIT, || {
            let mut modes = self.modes();
            modes.sort_unstable();
            Ok((modes == ["follower", "follower", "leader"]).then_some(()))
        })
    }

    /// Of several that say that they lead, the one of the latest epoch is right: the others have not noticed yet.
    fn look(&self) -> Option<usize> {
        let modes = self.modes();
        modes.iter().find(|mode| *mode == "follower")?;
        let leaders = zip(0.., &modes).filter(|(_, mode)| *mode == "leader");
        let by_epoch = leaders.filter_map(|(at, _)| Some((self.epoch(at)?, at)));
        by_epoch.max().map(|(_, at)| at)
    }

    /// What each member is; nothing for one that does not serve.
    fn modes(&self) -> [String; 3] {
        self.nodes.each_ref().map(|node| node.mode().unwrap_or_default())
    }

    fn epoch(&self, at: usize) -> Option<u64> {
        self.nodes.get(at)?.epoch().ok()
    }
}

impl Peer {
    fn reserve() -> io::Result<Self> {
        Ok(Self { quorum: Port::reserve()?, election: Port::reserve()? })
    }
}

fn introduced(member: ZooKeeperBuilder, (id, peer): (usize, &Peer)) -> ZooKeeperBuilder {
    let (quorum, election) = (peer.quorum.address(), peer.election.number());
    member.option(&format!("server.{id}"), &format!("{quorum}:{election}"))
}
