-- Schema 1 of a PostgreSQL store: the tables. All times are the server's.
--
-- Apply the files in this order, as the role that is to own the store: tables, line, acquire, renew, release, break, guard, holders,
-- prune, done; then grant for each role that is to use it. `cerrojo store init` does so in one transaction, and `cerrojo store init --print`
-- shows the text with a schema and a table of your choice in place of "cerrojo" and "lock".

DO $$
BEGIN
    IF to_regnamespace('"cerrojo"') IS NULL THEN
        CREATE SCHEMA "cerrojo";
    END IF;
END
$$;

-- One row for each name. Free: no owner, or expires_at has passed.
CREATE TABLE IF NOT EXISTS "cerrojo"."lock" (
    name       text COLLATE "C" PRIMARY KEY,
    owner      uuid,
    -- Of the latest grant.
    token      bigint NOT NULL DEFAULT 0,
    granted_at timestamptz NOT NULL DEFAULT '-infinity',
    expires_at timestamptz NOT NULL DEFAULT '-infinity',
    -- As asked for: what a renewal sets anew.
    ttl_ms     bigint NOT NULL DEFAULT 0,
    -- No renewal is taken any more.
    broken     boolean NOT NULL DEFAULT false,
    -- Whether anybody may stand in the line: who releases a lock without waiters does not look for them.
    waiting    boolean NOT NULL DEFAULT false,
    identity   text NOT NULL DEFAULT ''
    -- Every index on a column that changes would end HOT updates: there is none.
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

-- The lines, each in the order of place. Changed by whoever has locked the name's row, and nobody else.
CREATE TABLE IF NOT EXISTS "cerrojo"."lock_waiter" (
    name        text COLLATE "C" NOT NULL,
    place       bigint NOT NULL,
    owner       uuid NOT NULL,
    ttl_ms      bigint NOT NULL,
    identity    text NOT NULL,
    -- Where it hears; empty: it hears nothing, and asks often.
    channel     text NOT NULL,
    -- The waiter's own time when its latest request left: what it is told with a hand-over, and counts from.
    asked       bigint NOT NULL,
    -- When it asks again by itself.
    wake_at     timestamptz NOT NULL,
    -- A waiter of whom nothing has been heard until then has left.
    alive_until timestamptz NOT NULL,
    PRIMARY KEY (name, place)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

-- Tokens, and places in lines. Read under the lock of the name's row, so that they grow in the order of grants.
CREATE SEQUENCE IF NOT EXISTS "cerrojo"."lock_token" AS bigint MAXVALUE 1099511627775 NO CYCLE CACHE 1;

CREATE TABLE IF NOT EXISTS "cerrojo"."lock_store" (
    one      boolean PRIMARY KEY DEFAULT true CHECK (one),
    store_id uuid NOT NULL DEFAULT gen_random_uuid(),
    version  integer NOT NULL,
    -- The cluster whose timelines the tokens count: standbys and restored backups are the same one; one that was made by pg_upgrade or
    -- that a dump was restored into is another, and its timelines begin anew.
    cluster  bigint NOT NULL
);

-- What is answered to one request. `outcome` is one of
--   granted   it is the owner's, by this token
--   held      by somebody else: `held` tells by whom, and a waiter after how many ms it asks again by itself
--   released  by this request
--   gone      the owner does not hold it
--   busy      somebody's transaction holds the row: ask again
--   late      it came too late, and nothing was done
-- The functions for batches answer with an array for each column, `requests` being places in their arguments.
DO $$
BEGIN
    IF to_regtype('"cerrojo"."lock_answer"') IS NULL THEN
        CREATE TYPE "cerrojo"."lock_answer" AS (outcome text, token bigint, held text);
    END IF;
END
$$;

-- Which store this is, whether it was brought here from another cluster, and what a request for a grant shows. The one function that every
-- version has.
CREATE OR REPLACE FUNCTION "cerrojo"."lock_about"(
    OUT version integer, OUT store_id uuid, OUT is_moved boolean, OUT table_oid bigint
)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$ SELECT version, store_id, cluster <> (SELECT system_identifier FROM pg_control_system()),
    '"cerrojo"."lock"'::regclass::oid::bigint FROM "cerrojo"."lock_store" $$;
