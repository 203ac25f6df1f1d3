//! The tables, and the one step that each operation takes on them. Runs on the worker's thread, inside a transaction.

use std::num::NonZeroU64;

use rusqlite::{CachedStatement, Connection, OptionalExtension, Row, params};
use serde::{Deserialize, Serialize};

use super::{
    error::LocalError,
    machine::Machine,
    process::Proof,
    wake::{PEER_LIVES, PeerId},
};
use crate::{
    FencedGrant, HolderInfo, Identity, LockName, StoreId, clock::Instant, owner::OwnerId,
    spi::Break,
};

/// "CERR": marks the file as ours.
const APPLICATION_ID: i64 = 0x4345_5252;
const SCHEMA: i64 = 1;
/// How many tokens a synced mark reserves. A reboot skips that many at most.
const RESERVE: i64 = 16_384;
/// When fewer are left, more are reserved. One batch of requests takes far fewer.
const RESERVE_LOW: i64 = 2_048;

/// A statement that stands in a file of its own.
macro_rules! sql {
    ($name:literal) => {
        include_str!(concat!("sql/", $name, ".sql"))
    };
}

type Outcome<T> = Result<T, LocalError>;

/// The tables of one open store.
pub(super) struct Tables {
    db: Connection,
    machine: Machine,
    store_id: StoreId,
    /// Whether the batch has come near the synced mark.
    tokens_low: bool,
    /// What follows once the batch is committed.
    news: News,
}

/// What a batch leads to outside of the tables.
#[derive(Debug, Default)]
pub(super) struct News {
    /// Who may enter.
    pub(super) wakes: Vec<Wake>,
    /// Processes that were found to be gone: their sockets go too.
    pub(super) gone: Vec<PeerId>,
}

/// A waiter that may enter now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wake {
    pub(super) peer: PeerId,
    pub(super) owner: OwnerId,
    pub(super) name: LockName,
}

/// What a request asks of the tables.
#[derive(Clone, Debug)]
pub(super) struct Ask {
    pub(super) name: LockName,
    pub(super) owner: OwnerId,
    pub(super) ttl_ns: u64,
    pub(super) identity: String,
    pub(super) proof: Option<String>,
    /// Where to stand in line, for one that waits.
    pub(super) line: Option<Standing>,
}

/// A process with waiters.
#[derive(Clone, Debug)]
pub(super) struct Standing {
    pub(super) peer: PeerId,
    pub(super) proof: Option<String>,
}

/// Why an ask was refused.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) holder: HolderInfo,
    /// Whose end would free the lock early.
    pub(super) proof: Option<Proof>,
}

/// One row of the table `lease`.
struct Record {
    name: LockName,
    owner: OwnerId,
    token: i64,
    granted_at: u64,
    expires_at: u64,
    broken: bool,
    identity: Identity,
    proof: Option<Proof>,
}

/// One row of a name's line.
struct InLine {
    owner: OwnerId,
    peer: PeerId,
    alive_until: u64,
    proof: Option<Proof>,
}

/// A waiter of this process, as the tables have it.
#[derive(Clone, Debug)]
pub(super) struct Waiting {
    pub(super) owner: OwnerId,
    /// Whether its lock can be had now, as far as this look tells.
    pub(super) may_enter: bool,
    /// Whose end would free it early.
    pub(super) proof: Option<Proof>,
}

/// [`Identity`] as it is stored.
#[derive(Serialize, Deserialize)]
struct IdentityText {
    host: Option<String>,
    pid: Option<u32>,
    label: Option<String>,
}

// Opening.

impl Tables {
    /// Opens the database, making its tables or noting a reboot where needed. The caller has the turn.
    pub(super) fn open(db: Connection, machine: Machine) -> Outcome<Self> {
        let mut tables = Self {
            db,
            machine,
            store_id: StoreId::from_bytes([0; 16]),
            tokens_low: true,
            news: News::default(),
        };
        tables.check_schema()?;
        tables.configure()?;
        tables.synced(|tables| tables.found_or_recover())?;
        tables.reserve_if_low()?;
        Ok(tables)
    }

    /// Reads only: a file that is not ours, damaged or newer is left as it is.
    fn check_schema(&self) -> Outcome<()> {
        let application = self.pragma("application_id")?;
        let schema = self.pragma("user_version")?;
        if application != APPLICATION_ID && (application != 0 || !self.is_empty()?) {
            return Err(LocalError::Foreign(application));
        }
        if schema > SCHEMA {
            return Err(LocalError::NewerSchema {
                found: schema,
                known: SCHEMA,
            });
        }
        let check: String = self
            .db
            .query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
        if check == "ok" {
            Ok(())
        } else {
            Err(LocalError::Damaged(check))
        }
    }

    /// Without tables: a file that was just made. A database that never set an application id has some.
    fn is_empty(&self) -> Outcome<bool> {
        let count = "SELECT count(*) = 0 FROM sqlite_schema";
        Ok(self.db.query_row(count, [], |row| row.get(0))?)
    }

    fn pragma(&self, name: &str) -> Outcome<i64> {
        Ok(self.db.pragma_query_value(None, name, |row| row.get(0))?)
    }

    fn configure(&self) -> Outcome<()> {
        self.db.set_prepared_statement_cache_capacity(64);
        self.db.pragma_update(None, "journal_mode", "WAL")?;
        self.db.pragma_update(None, "synchronous", "NORMAL")?;
        self.db
            .pragma_update(None, "journal_size_limit", 4 * 1024 * 1024)?;
        self.db.pragma_update(None, "trusted_schema", false)?;
        // Leaving is quick, and no process syncs on behalf of all when it is the last to leave.
        let no_checkpoint = rusqlite::config::DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE;
        self.db.set_db_config(no_checkpoint, true)?;
        Ok(())
    }

    fn found_or_recover(&mut self) -> Outcome<()> {
        if self.pragma("user_version")? == 0 {
            self.found()?;
        }
        let (store_id, boot_id, time_ns) = self.db.query_row(sql!("store"), [], |row| {
            Ok((
                row.get::<_, [u8; 16]>(0)?,
                row.get::<_, String>(1)?,
                row.get::<_, i64>(2)?,
            ))
        })?;
        self.store_id = StoreId::from_bytes(store_id);
        if boot_id != self.machine.boot_id {
            return self.note_reboot();
        }
        if time_ns == signed(self.machine.time_namespace) {
            Ok(())
        } else {
            Err(LocalError::TimeNamespace)
        }
    }

    fn found(&self) -> Outcome<()> {
        self.db.execute_batch(sql!("schema"))?;
        let id = StoreId::random();
        let machine = &self.machine;
        let row = params![
            id.as_bytes(),
            machine.boot_id,
            signed(machine.time_namespace)
        ];
        self.db.execute(sql!("found"), row)?;
        self.db
            .pragma_update(None, "application_id", APPLICATION_ID)?;
        self.db.pragma_update(None, "user_version", SCHEMA)?;
        Ok(())
    }

    /// No process of the last boot runs any more; some of its commits may be lost, but never the synced mark.
    fn note_reboot(&self) -> Outcome<()> {
        self.db.execute_batch(sql!("clear"))?;
        let row = params![self.machine.boot_id, signed(self.machine.time_namespace)];
        self.db.execute(sql!("reboot"), row)?;
        Ok(())
    }

    pub(super) fn store_id(&self) -> StoreId {
        self.store_id
    }

    pub(super) fn machine(&self) -> &Machine {
        &self.machine
    }
}

// Transactions.

impl Tables {
    pub(super) fn begin(&self) -> Outcome<()> {
        self.run("BEGIN IMMEDIATE")
    }

    /// False after an error on which SQLite has rolled the whole batch back.
    pub(super) fn is_in_batch(&self) -> bool {
        !self.db.is_autocommit()
    }

    pub(super) fn commit(&self) -> Outcome<()> {
        let commit = self
            .db
            .prepare_cached("COMMIT")
            .and_then(|mut commit| commit.execute([]));
        commit.map(drop).map_err(LocalError::Commit)
    }

    /// Undoes the batch. Where SQLite has rolled back on its own, there is nothing left to do.
    pub(super) fn roll_back(&mut self) {
        self.news = News::default();
        if self.is_in_batch()
            && let Err(error) = self.run("ROLLBACK")
        {
            tracing::warn!(%error, "rollback failed");
        }
    }

    /// One step of a batch: done whole or not at all.
    pub(super) fn step<T>(&mut self, step: impl FnOnce(&mut Self) -> Outcome<T>) -> Outcome<T> {
        let before = (self.news.wakes.len(), self.news.gone.len());
        self.run("SAVEPOINT step")?;
        let result = step(self);
        if result.is_err() {
            self.news.wakes.truncate(before.0);
            self.news.gone.truncate(before.1);
            if self.is_in_batch() {
                self.run("ROLLBACK TO step")?;
            }
        }
        if self.is_in_batch() {
            self.run("RELEASE step")?;
        }
        result
    }

    fn run(&self, statement: &str) -> Outcome<()> {
        self.statement(statement)?.execute([])?;
        Ok(())
    }

    /// A transaction whose commit is on the disk when it returns.
    fn synced(&mut self, work: impl FnOnce(&mut Self) -> Outcome<()>) -> Outcome<()> {
        self.db.pragma_update(None, "synchronous", "FULL")?;
        let result = self
            .begin()
            .and_then(|()| work(self))
            .and_then(|()| self.commit());
        if result.is_err() {
            self.roll_back();
        }
        self.db.pragma_update(None, "synchronous", "NORMAL")?;
        result
    }

    /// Moves the synced mark up when the last batches have come near it. The caller has the turn.
    pub(super) fn reserve_if_low(&mut self) -> Outcome<()> {
        if !self.tokens_low {
            return Ok(());
        }
        self.synced(|tables| {
            tables.statement(sql!("reserve"))?.execute([RESERVE])?;
            Ok(())
        })?;
        self.tokens_low = false;
        Ok(())
    }

    pub(super) fn take_news(&mut self) -> News {
        std::mem::take(&mut self.news)
    }

    fn statement(&self, text: &str) -> Outcome<CachedStatement<'_>> {
        Ok(self.db.prepare_cached(text)?)
    }
}

// Leases.

impl Tables {
    /// Grants to the owner that has it already, or to the first in line if it is free.
    pub(super) fn acquire(&mut self, ask: &Ask) -> Outcome<Result<FencedGrant, Held>> {
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
                Ok(Err(Held {
                    holder,
                    proof: None,
                }))
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
        self.statement(sql!("leave"))?
            .execute([ask.owner.as_bytes()])?;
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
        Ok(FencedGrant {
            number,
            store: self.store_id,
        })
    }

    /// Sets the TTL anew. False: not this owner's any more, or broken.
    pub(super) fn prolong(&self, name: &LockName, owner: OwnerId, ttl_ns: u64) -> Outcome<bool> {
        let now = now();
        let expires_at = now.saturating_add(ttl_ns);
        let row = params![
            name.as_str(),
            owner.as_bytes(),
            signed(now),
            signed(expires_at)
        ];
        Ok(self.statement(sql!("prolong"))?.execute(row)? == 1)
    }

    /// Ends the owner's lease and calls the next in line. False: it was not this owner's any more.
    pub(super) fn release(&mut self, name: &LockName, owner: OwnerId) -> Outcome<bool> {
        let now = now();
        let expired: Option<i64> = self
            .statement(sql!("release"))?
            .query_row(params![name.as_str(), owner.as_bytes()], |row| row.get(0))
            .optional()?;
        if expired.is_some() {
            self.call_next(name, now)?;
        }
        Ok(expired.is_some_and(|expires_at| expires_at > signed(now)))
    }

    /// Takes a waiter out of its line, and calls the next if the lock is free.
    pub(super) fn leave(&mut self, name: &LockName, owner: OwnerId) -> Outcome<()> {
        let left = self.statement(sql!("leave"))?.execute([owner.as_bytes()])?;
        if left > 0 {
            self.call_next(name, now())
        } else {
            Ok(())
        }
    }

    pub(super) fn holder(&self, name: &LockName) -> Outcome<Option<HolderInfo>> {
        let now = now();
        Ok(self.live(name, now)?.map(|record| record.held(now).holder))
    }

    pub(super) fn list(&self, after: &str, limit: usize) -> Outcome<Vec<HolderInfo>> {
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

    pub(super) fn break_lock(
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
        Ok(Some(HolderInfo {
            broken: true,
            ..record.held(now).holder
        }))
    }

    /// Removes leases that have ended and processes that are gone.
    pub(super) fn prune(&mut self) -> Outcome<u64> {
        let now = now();
        let ended: Vec<_> = self
            .records()?
            .into_iter()
            .filter(|record| self.has_ended(record, now))
            .collect();
        for record in &ended {
            self.statement(sql!("free"))?
                .execute([record.name.as_str()])?;
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
    fn live(&self, name: &LockName, now: u64) -> Outcome<Option<Record>> {
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

// Waiting.

impl Tables {
    fn stand_in_line(&self, ask: &Ask, now: u64) -> Outcome<()> {
        let Some(standing) = &ask.line else {
            return Ok(());
        };
        self.stir(standing, now)?;
        let row = params![
            ask.name.as_str(),
            ask.owner.as_bytes(),
            standing.peer.as_bytes()
        ];
        self.statement(sql!("join"))?.execute(row)?;
        Ok(())
    }

    /// A sign of life of a process with waiters.
    fn stir(&self, standing: &Standing, now: u64) -> Outcome<()> {
        let alive_until = Instant::from_nanos(now) + PEER_LIVES;
        let row = params![
            standing.peer.as_bytes(),
            standing.proof,
            signed(alive_until.as_nanos())
        ];
        self.statement(sql!("stir"))?.execute(row)?;
        Ok(())
    }

    /// A sign of life, answered with how the process's waiters stand.
    pub(super) fn look_after(&self, standing: &Standing) -> Outcome<Vec<Waiting>> {
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
    fn call_next(&mut self, name: &LockName, now: u64) -> Outcome<()> {
        if self.live(name, now)?.is_none()
            && let Some(first) = self.first_in_line(name, now)?
        {
            self.call(name, &first);
        }
        Ok(())
    }

    fn call(&mut self, name: &LockName, first: &InLine) {
        self.news.wakes.push(Wake {
            peer: first.peer,
            owner: first.owner,
            name: name.clone(),
        });
    }

    /// The first whose process stirs. One that does not is passed over, and taken out if it is gone.
    fn first_in_line(&mut self, name: &LockName, now: u64) -> Outcome<Option<InLine>> {
        let mut gone = vec![];
        let mut first = None;
        for waiter in self.line(name)? {
            if waiter.alive_until > now {
                first = Some(waiter);
                break;
            }
            if waiter
                .proof
                .as_ref()
                .is_none_or(|proof| proof.all_gone(&self.machine))
            {
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
    pub(super) fn forget(&mut self, peer: PeerId) -> Outcome<()> {
        let names = self.take_out(peer)?;
        for name in names {
            self.call_next(&read_name(&name)?, now())?;
        }
        Ok(())
    }

    /// Removes a process and its waiters; says for which names it waited.
    fn take_out(&mut self, peer: PeerId) -> Outcome<Vec<String>> {
        self.news.gone.push(peer);
        self.statement(sql!("forget_peer"))?
            .execute([peer.as_bytes()])?;
        let mut statement = self.statement(sql!("forget_waiters"))?;
        let names = statement.query_map([peer.as_bytes()], |row| row.get(0))?;
        Ok(names.collect::<Result<_, _>>()?)
    }

    fn gone_peers(&self) -> Outcome<Vec<PeerId>> {
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

// Rows.

impl Record {
    fn read(row: &Row<'_>) -> Outcome<Self> {
        Ok(Self {
            name: read_name(
                row.get_ref(0)?
                    .as_str()
                    .map_err(|error| LocalError::Record(error.to_string()))?,
            )?,
            owner: OwnerId::from_bytes(row.get(1)?),
            token: row.get(2)?,
            granted_at: unsigned(row.get(3)?),
            expires_at: unsigned(row.get(4)?),
            broken: row.get(5)?,
            identity: read_identity(row.get_ref(6)?.as_str().unwrap_or_default())?,
            proof: read_proof(row.get(7)?)?,
        })
    }

    fn held(self, now: u64) -> Held {
        let mut holder = HolderInfo::new(self.name, &self.owner);
        let now = Instant::from_nanos(now);
        holder.token = u64::try_from(self.token).ok();
        holder.identity = self.identity;
        holder.held_for = Some(now.since(Instant::from_nanos(self.granted_at)));
        holder.ends_in = Some(Instant::from_nanos(self.expires_at).since(now));
        holder.broken = self.broken;
        Held {
            holder,
            proof: self.proof,
        }
    }
}

/// An identity as it is stored.
pub(super) fn write_identity(identity: &Identity) -> String {
    let Identity { host, pid, label } = identity.clone();
    text_of(&IdentityText { host, pid, label })
}

/// A proof as it is stored.
pub(super) fn write_proof(proof: &Proof) -> String {
    text_of(proof)
}

fn text_of(value: &impl Serialize) -> String {
    // Structs of plain fields always have a JSON text.
    serde_json::to_string(value).unwrap_or_default()
}

fn read_identity(text: &str) -> Outcome<Identity> {
    let IdentityText { host, pid, label } = parse(text)?;
    Ok(Identity { host, pid, label })
}

fn read_proof(text: Option<String>) -> Outcome<Option<Proof>> {
    text.map(|text| parse(&text)).transpose()
}

fn read_name(text: &str) -> Outcome<LockName> {
    text.parse()
        .map_err(|error: crate::InvalidName| LocalError::Record(error.to_string()))
}

fn parse<T: for<'a> Deserialize<'a>>(text: &str) -> Outcome<T> {
    serde_json::from_str(text).map_err(|error| LocalError::Record(error.to_string()))
}

/// Now, read inside the transaction: waiting for the turn takes no part of a TTL.
fn now() -> u64 {
    Instant::now().as_nanos()
}

/// SQLite's integers are signed; times and ids beyond that range do not occur, and saturate.
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}
