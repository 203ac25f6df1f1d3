//! The lines in which waiters stand, one for each name.

use rusqlite::params;

use super::{
    Outcome, Tables, Wake,
    leases::Ask,
    record::{now, read_name, read_proof, signed, unsigned},
};
use crate::{
    LockName,
    backend::local::{
        process::Proof,
        wake::{PEER_LIVES, PeerId},
    },
    clock::Instant,
    owner::OwnerId,
};

/// A process with waiters.
#[derive(Clone, Debug)]
pub(in super::super) struct Standing {
    pub(in super::super) peer: PeerId,
    pub(in super::super) proof: Option<String>,
}

/// One row of a name's line.
pub(super) struct InLine {
    pub(super) owner: OwnerId,
    peer: PeerId,
    alive_until: u64,
    proof: Option<Proof>,
}

/// A waiter of this process, as the tables have it.
#[derive(Clone, Debug)]
pub(in super::super) struct Waiting {
    pub(in super::super) owner: OwnerId,
    /// Whether its lock can be had now, as far as this look tells.
    pub(in super::super) may_enter: bool,
    /// Whose end would free it early.
    pub(in super::super) proof: Option<Proof>,
}

impl Tables {
    pub(super) fn stand_in_line(&self, ask: &Ask, now: u64) -> Outcome<()> {
        let Some(standing) = &ask.line else {
            return Ok(());
        };
        self.stir(standing, now)?;
        let row = params![ask.name.as_str(), ask.owner.as_bytes(), standing.peer.as_bytes()];
        self.statement(sql!("join"))?.execute(row)?;
        Ok(())
    }

    /// A sign of life of a process with waiters.
    fn stir(&self, standing: &Standing, now: u64) -> Outcome<()> {
        let alive_until = Instant::from_nanos(now) + PEER_LIVES;
        let row = params![standing.peer.as_bytes(), standing.proof, signed(alive_until.as_nanos())];
        self.statement(sql!("stir"))?.execute(row)?;
        Ok(())
    }

    /// A sign of life, answered with how the process's waiters stand.
    pub(in super::super) fn look_after(&self, standing: &Standing) -> Outcome<Vec<Waiting>> {
        let now = now();
        self.stir(standing, now)?;
        let mut statement = self.statement(sql!("waiting"))?;
        let mut rows = statement.query([standing.peer.as_bytes()])?;
        let mut waiting = vec![];
        while let Some(row) = rows.next()? {
            let expires_at: Option<i64> = row.get(1)?;
            waiting.push(Waiting {
                owner: OwnerId::from_bytes(row.get(0)?),
                may_enter: expires_at.is_none_or(|expires_at| expires_at <= signed(now)),
                proof: read_proof(row.get(2)?)?,
            });
        }
        Ok(waiting)
    }

    /// Calls the first in line, if the lock is free.
    pub(super) fn call_next(&mut self, name: &LockName, now: u64) -> Outcome<()> {
        if self.live(name, now)?.is_none() { self.call_first(name, now) } else { Ok(()) }
    }

    /// Calls the first in line of a lock that is free.
    pub(super) fn call_first(&mut self, name: &LockName, now: u64) -> Outcome<()> {
        if let Some(first) = self.first_in_line(name, now)? {
            self.call(name, &first);
        }
        Ok(())
    }

    pub(super) fn call(&mut self, name: &LockName, first: &InLine) {
        self.news.wakes.push(Wake { peer: first.peer, owner: first.owner, name: name.clone() });
    }

    /// The first whose process stirs. One that does not is passed over, and taken out if it is gone.
    pub(super) fn first_in_line(&mut self, name: &LockName, now: u64) -> Outcome<Option<InLine>> {
        let mut gone = vec![];
        let mut first = None;
        for waiter in self.line(name)? {
            if waiter.alive_until > now {
                first = Some(waiter);
                break;
            }
            if waiter.proof.as_ref().is_none_or(|proof| proof.all_gone(&self.machine)) {
                gone.push(waiter.peer);
            }
        }
        for peer in gone {
            self.take_out(peer)?;
        }
        Ok(first)
    }

    fn line(&self, name: &LockName) -> Outcome<Vec<InLine>> {
        let mut statement = self.statement(sql!("line"))?;
        let mut rows = statement.query([name.as_str()])?;
        let mut line = vec![];
        while let Some(row) = rows.next()? {
            line.push(InLine {
                owner: OwnerId::from_bytes(row.get(0)?),
                peer: PeerId::from_bytes(row.get(1)?),
                alive_until: unsigned(row.get::<_, Option<i64>>(2)?.unwrap_or(0)),
                proof: read_proof(row.get(3)?)?,
            });
        }
        Ok(line)
    }

    /// Takes a process that is gone out of all lines, and calls those behind it.
    pub(in super::super) fn forget(&mut self, peer: PeerId) -> Outcome<()> {
        let names = self.take_out(peer)?;
        for name in names {
            self.call_next(&read_name(&name)?, now())?;
        }
        Ok(())
    }

    /// Removes a process and its waiters; says for which names it waited.
    fn take_out(&mut self, peer: PeerId) -> Outcome<Vec<String>> {
        self.news.gone.push(peer);
        self.statement(sql!("forget_peer"))?.execute([peer.as_bytes()])?;
        let mut statement = self.statement(sql!("forget_waiters"))?;
        let names = statement.query_map([peer.as_bytes()], |row| row.get(0))?;
        Ok(names.collect::<Result<_, _>>()?)
    }

    pub(super) fn gone_peers(&self) -> Outcome<Vec<PeerId>> {
        let mut statement = self.statement(sql!("peers"))?;
        let mut rows = statement.query([])?;
        let mut gone = vec![];
        while let Some(row) = rows.next()? {
            let proof = read_proof(row.get(2)?)?;
            if proof.is_some_and(|proof| proof.all_gone(&self.machine)) {
                gone.push(PeerId::from_bytes(row.get(0)?));
            }
        }
        Ok(gone)
    }
}
