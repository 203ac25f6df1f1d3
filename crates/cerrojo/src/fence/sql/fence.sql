-- Fences for what is kept in this database, one row for each resource. Apply it in one transaction (psql -1 -f fence.sql), as the role that is to
-- own it, as often as you like; grant.sql opens it to a role. "cerrojo" and "fence" stand for a schema and a table of your choice.
--
-- Then, in every transaction that reads or writes the resource, before anything else that it does:
--
--     BEGIN;
--     SELECT "cerrojo"."fence_admit"(store, resource, token);
--     ...
--     COMMIT;

SELECT pg_advisory_xact_lock(hashtextextended('"cerrojo"', 0));

DO $$
BEGIN
    IF to_regnamespace('"cerrojo"') IS NULL THEN
        CREATE SCHEMA "cerrojo";
    END IF;
END
$$;

-- A resource without a row has admitted no token yet: who removes one forgets what was admitted.
CREATE TABLE IF NOT EXISTS "cerrojo"."fence" (
    resource text COLLATE "C" PRIMARY KEY CHECK (octet_length(resource) BETWEEN 1 AND 1024),
    -- Whose tokens are counted: tokens of two stores say nothing about each other.
    store    uuid NOT NULL,
    -- The greatest token that was admitted; 0: none of this store yet.
    highest  bigint NOT NULL CHECK (highest >= 0)
) WITH (fillfactor = 50);

-- Admits a token that is not smaller than the greatest seen, and remembers it when the transaction commits. Fails with SQLSTATE
--   CR002  stale: a greater one was admitted, which is the error's detail
--   CR005  the token is of another store than those before, which is the detail
-- or as any UPDATE does, in REPEATABLE READ and SERIALIZABLE also with 40001: roll back and begin anew.
--
-- The row is written, also for a token that is known, and so is locked until the transaction ends. A newer holder waits for an older one that was
-- admitted and is at work, and its snapshot, at any isolation level, is one that has all that the older one did: a lock that wrote nothing would
-- leave a snapshot from before good.
CREATE OR REPLACE FUNCTION "cerrojo"."fence_admit"(of_store uuid, of_resource text, with_token bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    known "cerrojo"."fence";
BEGIN
    IF with_token < 1 THEN
        RAISE EXCEPTION 'a fencing token is a number from 1 on, not %', with_token USING ERRCODE = '22003';
    END IF;
    INSERT INTO "cerrojo"."fence" AS f (resource, store, highest) VALUES (of_resource, of_store, with_token)
    ON CONFLICT (resource) DO UPDATE SET highest = excluded.highest
    WHERE f.store = excluded.store AND f.highest <= excluded.highest;
    IF FOUND THEN
        RETURN;
    END IF;
    SELECT f.* INTO known FROM "cerrojo"."fence" f WHERE f.resource = of_resource;
    IF known.store <> of_store THEN
        RAISE EXCEPTION 'the fence of % counts tokens of store %, and the token presented is of %', of_resource, known.store, of_store
            USING ERRCODE = 'CR005', DETAIL = known.store::text, HINT = 'If the store was replaced, the fence has to adopt the new one first.';
    END IF;
    RAISE EXCEPTION 'stale: token % was presented, % has been admitted already', with_token, known.highest
        USING ERRCODE = 'CR002', DETAIL = known.highest::text;
END
$$;

-- From now on the fence counts tokens of this store, from the first. Nobody who holds a token of the one before may be at work any more. To adopt
-- the store that it knows changes nothing.
CREATE OR REPLACE FUNCTION "cerrojo"."fence_adopt"(of_store uuid, of_resource text) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    INSERT INTO "cerrojo"."fence" AS f (resource, store, highest) VALUES (of_resource, of_store, 0)
    ON CONFLICT (resource) DO UPDATE SET store = excluded.store, highest = 0 WHERE f.store <> excluded.store
$$;

REVOKE ALL ON FUNCTION "cerrojo"."fence_admit", "cerrojo"."fence_adopt" FROM PUBLIC;
