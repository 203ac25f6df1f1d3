//! What may happen to a lease.

use std::num::NonZeroU64;

use rusqlite::{OptionalExtension, params};

use super::{
    Outcome, RESERVE_LOW, Tables,
    line::Standing,
    record::{Record, now, signed},
};
use crate::{
    FencedGrant, HolderInfo, LockName,
    backend::local::{error::LocalError, process::Proof},
    owner::OwnerId,
    spi::Break,
};

/// What a request asks of the tables.
#[derive(Clone, Debug)]
pub(in super::super) struct Ask {
    pub(in super::super) name: LockName,
    pub(in super::super) owner: OwnerId,
    pub(in super::super) ttl_ns: u64,
    pub(in super::super) identity: String,
    pub(in super::super) proof: Option<String>,
    /// Where to stand in line, for one that waits.
    pub(in super::super) line: Option<Standing>,
}

/// Why an ask was refused.
#[derive(Clone, Debug)]
pub(in super::super) struct Held {
    pub(in super::super) holder: HolderInfo,
    /// Whose end would free the lock early.
    pub(in super::super) proof: Option<Proof>,
}

impl Tables {
    /// Grants to the owner that has it already, or to the first in line if it is free.
    pub(in super::super) fn acquire(&mut self, ask: &Ask) -> Outcome<Result<FencedGrant, Held>> {
        let now = now();
        if let Some(record) = self.live(&ask.name, now)? {
            if record.owner == ask.owner && !record.broken {
                self.prolong(&ask.name, ask.owner, ask.ttl_ns)?;
                return Ok(Ok(self.grant_of(record.token)?));
            }
            self.stand_in_line(ask, now)?;
            return Ok(Err(record.held(now)));
        }
        match self.first_in_line(&ask.name, now)? {
            Some(first) if first.owner != ask.owner => {
                self.stand_in_line(ask, now)?;
                let holder = HolderInfo::new(ask.name.clone(), &first.owner);
                self.call(&ask.name, &first);
                Ok(Err(Held { holder, proof: None }))
            }
            _ => self.grant(ask, now).map(Ok),
        }
    }

    fn grant(&mut self, ask: &Ask, now: u64) -> Outcome<FencedGrant> {
        let token = self.take_token()?;
        let row = params![
            ask.name.as_str(),
            ask.owner.as_bytes(),
            token,
            signed(now),
            signed(now.saturating_add(ask.ttl_ns)),
            ask.identity,
            ask.proof
        ];
        self.statement(sql!("grant"))?.execute(row)?;
        self.statement(sql!("leave"))?.execute([ask.owner.as_bytes()])?;
        self.grant_of(token)
    }

    fn take_token(&mut self) -> Outcome<i64> {
        let taken: Option<(i64, i64)> = self
            .statement(sql!("take_token"))?
            .query_row([], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()?;
        self.tokens_low |= taken.is_none_or(|(_, left)| left < RESERVE_LOW);
        taken.map(|(token, _)| token).ok_or(LocalError::NoTokens)
    }

    fn grant_of(&self, token: i64) -> Outcome<FencedGrant> {
        let number = u64::try_from(token).ok().and_then(NonZeroU64::new);
        let number = number.ok_or_else(|| LocalError::Record(format!("token {token}")))?;
        Ok(FencedGrant { number, store: self.store_id })
    }

    /// Sets the TTL anew. False: not this owner's any more, or broken.
    pub(in super::super) fn prolong(
        &self,
        name: &LockName,
        owner: OwnerId,
        ttl_ns: u64,
    ) -> Outcome<bool> {
        let now = now();
        let expires_at = now.saturating_add(ttl_ns);
        let row = params![name.as_str(), owner.as_bytes(), signed(now), signed(expires_at)];
        Ok(self.statement(sql!("prolong"))?.execute(row)? == 1)
    }

    /// As [`Tables::prolong`], and says what was granted; none: this owner holds nothing, or something broken.
    pub(in super::super) fn resume(
        &self,
        name: &LockName,
        owner: OwnerId,
        ttl_ns: u64,
    ) -> Outcome<Option<FencedGrant>> {
        if !self.prolong(name, owner, ttl_ns)? {
            return Ok(None);
        }
        let record = self.live(name, now())?;
        record.map(|record| self.grant_of(record.token)).transpose()
    }

    /// Ends the owner's lease and calls the next in line. False: it was not this owner's any more.
    pub(in super::super) fn release(&mut self, name: &LockName, owner: OwnerId) -> Outcome<bool> {
        let now = now();
        let expired: Option<i64> = self
            .statement(sql!("release"))?
            .query_row(params![name.as_str(), owner.as_bytes()], |row| row.get(0))
            .optional()?;
        if expired.is_some() {
            self.call_first(name, now)?;
        }
        Ok(expired.is_some_and(|expires_at| expires_at > signed(now)))
    }

    /// Takes a waiter out of its line, and calls the next if the lock is free.
    pub(in super::super) fn leave(&mut self, name: &LockName, owner: OwnerId) -> Outcome<()> {
        let left = self.statement(sql!("leave"))?.execute([owner.as_bytes()])?;
        if left > 0 { self.call_next(name, now()) } else { Ok(()) }
    }

    pub(in super::super) fn holder(&self, name: &LockName) -> Outcome<Option<HolderInfo>> {
        let now = now();
        Ok(self.live(name, now)?.map(|record| record.held(now).holder))
    }

    pub(in super::super) fn list(&self, after: &str, limit: usize) -> Outcome<Vec<HolderInfo>> {
        let now = now();
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let mut statement = self.statement(sql!("leases"))?;
        let mut rows = statement.query(params![after, signed(now), limit])?;
        let mut holders = vec![];
        while let Some(row) = rows.next()? {
            holders.push(Record::read(row)?.held(now).holder);
        }
        Ok(holders)
    }

    pub(in super::super) fn break_lock(
        &mut self,
        name: &LockName,
        when: Break,
    ) -> Outcome<Option<HolderInfo>> {
        let now = now();
        let Some(record) = self.live(name, now)? else {
            return Ok(None);
        };
        match when {
            Break::AtExpiry => drop(self.statement(sql!("break"))?.execute([name.as_str()])?),
            Break::Now => {
                self.statement(sql!("free"))?.execute([name.as_str()])?;
                self.call_next(name, now)?;
            }
        }
        Ok(Some(HolderInfo { broken: true, ..record.held(now).holder }))
    }

    /// Removes leases that have ended and processes that are gone.
    pub(in super::super) fn prune(&mut self) -> Outcome<u64> {
        let now = now();
        let ended: Vec<_> =
            self.records()?.into_iter().filter(|record| self.has_ended(record, now)).collect();
        for record in &ended {
            self.statement(sql!("free"))?.execute([record.name.as_str()])?;
            self.call_next(&record.name, now)?;
        }
        let gone = self.gone_peers()?;
        for peer in &gone {
            self.forget(*peer)?;
        }
        Ok(u64::try_from(ended.len() + gone.len()).unwrap_or(u64::MAX))
    }

    fn records(&self) -> Outcome<Vec<Record>> {
        let mut statement = self.statement(sql!("all_leases"))?;
        let mut rows = statement.query([])?;
        let mut records = vec![];
        while let Some(row) = rows.next()? {
            records.push(Record::read(row)?);
        }
        Ok(records)
    }

    /// The record of a lease that has not ended.
    pub(super) fn live(&self, name: &LockName, now: u64) -> Outcome<Option<Record>> {
        let mut statement = self.statement(sql!("lease"))?;
        let mut rows = statement.query([name.as_str()])?;
        let record = rows.next()?.map(Record::read).transpose()?;
        Ok(record.filter(|record| !self.has_ended(record, now)))
    }

    fn has_ended(&self, record: &Record, now: u64) -> bool {
        let gone = |proof: &Proof| proof.all_gone(&self.machine);
        record.expires_at <= now || record.proof.as_ref().is_some_and(gone)
    }
}
