//! The tables, and the one step that each operation takes on them. Runs on the worker's thread, inside a transaction.

use rusqlite::{CachedStatement, Connection, Params, params};

use super::{error::LocalError, machine::Machine, wake::PeerId};
use crate::{LockName, StoreId, owner::OwnerId};

/// A longer write-ahead log is worked off when the store is opened: the first to open it has to read all of it.
const LOG_LONG_BYTES: u64 = 256 * 1_024;

/// A statement that stands in a file of its own.
macro_rules! sql {
    ($name:literal) => {
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/backend/local/sql/", $name, ".sql"))
    };
}

mod leases;
mod line;
mod record;

pub(super) use leases::{Ask, Held};
pub(super) use line::{Standing, Waiting};
use record::signed;
pub(super) use record::{write_identity, write_proof};

/// "CERR": marks the file as ours.
const APPLICATION_ID: i64 = 0x4345_5252;
const SCHEMA: i64 = 1;
/// How many tokens a synced mark reserves. A reboot skips that many at most.
const RESERVE: i64 = 16_384;
/// When fewer are left, more are reserved. One batch of requests takes far fewer.
const RESERVE_LOW: i64 = 2_048;

type Outcome<T> = Result<T, LocalError>;

/// The tables of one open store.
pub(super) struct Tables {
    db: Connection,
    machine: Machine,
    store_id: StoreId,
    /// Whether the batch has come near the synced mark.
    tokens_low: bool,
    /// Whether the batch is one step, which then needs no savepoint.
    alone: bool,
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

impl Tables {
    /// Opens the database, making its tables or noting a reboot where needed. The caller has the turn.
    pub(super) fn open(db: Connection, machine: Machine) -> Outcome<Self> {
        let mut tables = Self {
            db,
            machine,
            store_id: StoreId::from_bytes([0; 16]),
            tokens_low: true,
            alone: false,
            news: News::default(),
        };
        tables.check_schema()?;
        tables.configure()?;
        if tables.pragma("user_version")? == 0 {
            tables.synced(|tables| tables.found())?;
        }
        tables.recognise()?;
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
            return Err(LocalError::NewerSchema { found: schema, known: SCHEMA });
        }
        let check: String = self.db.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
        if check == "ok" { Ok(()) } else { Err(LocalError::Damaged(check)) }
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
        // Records are small, and the write-ahead log takes whole pages. Only a new file takes the size.
        self.db.pragma_update(None, "page_size", 1_024)?;
        self.db.pragma_update(None, "journal_mode", "WAL")?;
        self.db.pragma_update(None, "synchronous", "NORMAL")?;
        self.db.pragma_update(None, "wal_autocheckpoint", 4_000)?;
        self.db.pragma_update(None, "journal_size_limit", 4 * 1024 * 1024)?;
        self.db.pragma_update(None, "trusted_schema", false)?;
        // Leaving is quick, and no process syncs on behalf of all when it is the last to leave.
        let no_checkpoint = rusqlite::config::DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE;
        self.db.set_db_config(no_checkpoint, true)?;
        Ok(())
    }

    /// Moves a long write-ahead log into the database. Whoever reads it meanwhile keeps it as it is: the next opener tries again.
    pub(super) fn work_off_log(&self, log_bytes: u64) -> Outcome<()> {
        if log_bytes > LOG_LONG_BYTES {
            self.db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
        }
        Ok(())
    }

    /// Learns which store this is and how it stands, and notes a reboot.
    fn recognise(&mut self) -> Outcome<()> {
        let (store_id, boot_id, time_ns, left) = self.db.query_row(sql!("store"), [], |row| {
            let boot_id: String = row.get(1)?;
            Ok((row.get(0)?, boot_id, row.get::<_, i64>(2)?, row.get::<_, i64>(3)?))
        })?;
        self.store_id = StoreId::from_bytes(store_id);
        self.tokens_low = left < RESERVE_LOW;
        if boot_id != self.machine.boot_id {
            self.tokens_low = true;
            return self.synced(|tables| tables.note_reboot());
        }
        let same = time_ns == signed(self.machine.time_namespace);
        if same { Ok(()) } else { Err(LocalError::TimeNamespace) }
    }

    fn found(&self) -> Outcome<()> {
        self.db.execute_batch(sql!("schema"))?;
        let id = StoreId::random();
        let machine = &self.machine;
        let row = params![id.as_bytes(), machine.boot_id, signed(machine.time_namespace)];
        self.db.execute(sql!("found"), row)?;
        self.db.pragma_update(None, "application_id", APPLICATION_ID)?;
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

impl Tables {
    /// Begins a batch of that many steps.
    pub(super) fn begin(&mut self, steps: usize) -> Outcome<()> {
        self.alone = steps == 1;
        self.run("BEGIN IMMEDIATE")
    }

    /// False after an error on which everything has been rolled back.
    pub(super) fn is_in_batch(&self) -> bool {
        !self.db.is_autocommit()
    }

    pub(super) fn commit(&self) -> Outcome<()> {
        if self.is_in_batch() {
            return self.run("COMMIT").map_err(LocalError::into_commit);
        }
        // The one step has said why.
        if self.alone { Ok(()) } else { Err(LocalError::RolledBack) }
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
        if self.alone {
            return step(self).inspect_err(|_| self.roll_back());
        }
        let before = (self.news.wakes.len(), self.news.gone.len());
        self.run("SAVEPOINT step")?;
        let result = step(self);
        if result.is_err() {
            self.news.wakes.truncate(before.0);
            self.news.gone.truncate(before.1);
            self.undo_step()?;
        }
        if self.is_in_batch() {
            self.run("RELEASE step")?;
        }
        result
    }

    /// Where SQLite has rolled everything back on its own, there is nothing left to undo.
    fn undo_step(&self) -> Outcome<()> {
        if self.is_in_batch() { self.run("ROLLBACK TO step") } else { Ok(()) }
    }

    fn run(&self, statement: &str) -> Outcome<()> {
        self.execute(statement, [])
    }

    /// A transaction whose commit is on the disk when it returns.
    fn synced(&mut self, work: impl FnOnce(&mut Self) -> Outcome<()>) -> Outcome<()> {
        self.db.pragma_update(None, "synchronous", "FULL")?;
        let result = self.begin(1).and_then(|()| work(self)).and_then(|()| self.commit());
        if result.is_err() {
            self.roll_back();
        }
        self.db.pragma_update(None, "synchronous", "NORMAL")?;
        result
    }

    /// Moves the mark up when the last batches have come near it. The caller has the turn.
    ///
    /// In two commits: of a mark that SQLite recovers after a kill it is unknown whether it was ever synced, but what
    /// may be granted moves up only after the sync.
    pub(super) fn reserve_if_low(&mut self) -> Outcome<()> {
        if !self.tokens_low {
            return Ok(());
        }
        self.synced(|tables| tables.execute(sql!("reserve"), [RESERVE]))?;
        self.execute(sql!("reserved"), [])?;
        self.tokens_low = false;
        Ok(())
    }

    pub(super) fn take_news(&mut self) -> News {
        std::mem::take(&mut self.news)
    }

    fn execute(&self, text: &str, values: impl Params) -> Outcome<()> {
        self.statement(text)?.execute(values)?;
        Ok(())
    }

    fn statement(&self, text: &str) -> Outcome<CachedStatement<'_>> {
        Ok(self.db.prepare_cached(text)?)
    }
}
