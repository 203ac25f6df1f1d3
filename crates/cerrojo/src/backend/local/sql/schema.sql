-- Schema 1 of the embedded store. All times are nanoseconds of CLOCK_BOOTTIME.

CREATE TABLE store (
    one         INTEGER PRIMARY KEY CHECK (one = 1),
    store_id    BLOB NOT NULL CHECK (length(store_id) = 16),
    boot_id     TEXT NOT NULL,
    time_ns     INTEGER NOT NULL,
    -- The next token to grant.
    next_token  INTEGER NOT NULL CHECK (next_token > 0),
    -- After a reboot counting goes on above this mark. A commit that moves it up is synced.
    reserved_to INTEGER NOT NULL,
    -- The greatest token that may be granted: the mark, by a commit made after the mark's had been synced.
    grant_to    INTEGER NOT NULL
) STRICT;

CREATE TABLE lease (
    name       TEXT PRIMARY KEY,
    owner      BLOB NOT NULL CHECK (length(owner) = 16),
    token      INTEGER NOT NULL,
    granted_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    broken     INTEGER NOT NULL DEFAULT 0,
    identity   TEXT NOT NULL,
    -- What must be gone before the lease may be passed on early; NULL: nothing proves it.
    proof      TEXT
) STRICT, WITHOUT ROWID;

-- One row for each process (each open store in it) that has waiters.
CREATE TABLE peer (
    -- Also the name of its socket in the folder wake.
    id          BLOB PRIMARY KEY CHECK (length(id) = 16),
    proof       TEXT,
    -- Past it the process is taken for stopped, and its waiters are passed over until it stirs.
    alive_until INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE waiter (
    -- Grows in the order of coming.
    place INTEGER PRIMARY KEY,
    name  TEXT NOT NULL,
    owner BLOB NOT NULL UNIQUE CHECK (length(owner) = 16),
    peer  BLOB NOT NULL
) STRICT;

CREATE INDEX waiter_by_name ON waiter (name, place);
CREATE INDEX waiter_by_peer ON waiter (peer);
