-- What several operations do, and the line of those who wait. For the other functions alone: whoever calls these has locked the name's row.

-- What every operation does first. Answers what the clock shows, in microseconds since the epoch.
--
-- A batch never waits for a row. One request alone, which was told before that its name is busy, may wait a little for its turn: as long as
-- `patience_ms`, and then it fails. It waits for those who change the row, not for guarded transactions.
CREATE OR REPLACE FUNCTION "cerrojo"."lock_begin"(of_name text, patience_ms bigint) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    ignored text;
BEGIN
    -- Every statement has to see what was committed before it locked a row.
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'locks need the isolation level READ COMMITTED, not %', upper(current_setting('transaction_isolation'))
            USING ERRCODE = 'CR001';
    END IF;
    IF patience_ms > 0 THEN
        ignored := set_config('lock_timeout', patience_ms::text, true);
        PERFORM FROM "cerrojo"."lock" l WHERE l.name = of_name FOR NO KEY UPDATE;
    END IF;
    -- Nobody waits for the answer of a statement that has waited longer.
    ignored := set_config('lock_timeout', '1000', true);
    RETURN extract(epoch FROM clock_timestamp()) * 1000000;
END
$$;

-- What every operation does last. What others count on has to be on the disk when it is answered: a grant that a crash could take back would be
-- granted, with its token, to somebody else as well. What a crash may take back need not wait for the disk: a place in a line, which
-- the waiter's next request takes again; and a release that nobody waited for, without which the lock is held until its TTL ends.
-- Several operations in one transaction last if one of them does.
CREATE OR REPLACE FUNCTION "cerrojo"."lock_end"(has_to_last boolean) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    ignored text;
BEGIN
    IF has_to_last THEN
        ignored := set_config('cerrojo.lasts', 'yes', true);
        IF 'remote_apply' IN (current_setting('synchronous_commit'), current_setting('cerrojo.before', true)) THEN
            ignored := set_config('synchronous_commit', 'remote_apply', true);
        ELSIF current_setting('synchronous_commit') <> 'on' THEN
            ignored := set_config('synchronous_commit', 'on', true);
        END IF;
    ELSIF current_setting('cerrojo.lasts', true) IS DISTINCT FROM 'yes' AND current_setting('synchronous_commit') <> 'off' THEN
        ignored := set_config('cerrojo.before', current_setting('synchronous_commit'), true);
        ignored := set_config('synchronous_commit', 'off', true);
    END IF;
END
$$;

-- The WAL timeline in the high bits: after a promotion or a restore to a point in time tokens go on above all that were granted before.
CREATE OR REPLACE FUNCTION "cerrojo"."lock_next_token"() RETURNS bigint
LANGUAGE sql VOLATILE
AS $$
    SELECT ('x' || left(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 8))::bit(32)::bigint * 1099511627776
        + pg_catalog.nextval('"cerrojo"."lock_token"')
$$;

-- Who has it, as others may know.
CREATE OR REPLACE FUNCTION "cerrojo"."lock_held"(held "cerrojo"."lock", again_ms bigint) RETURNS "cerrojo"."lock_answer"
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    now timestamptz := clock_timestamp();
BEGIN
    RETURN ROW('held', NULL::bigint, json_build_object(
        'owner', left(held.owner::text, 8), 'token', held.token, 'identity', held.identity,
        'held_ms', (1000 * extract(epoch FROM now - held.granted_at))::bigint,
        'ends_ms', (1000 * extract(epoch FROM held.expires_at - now))::bigint,
        'broken', held.broken, 'again_ms', again_ms)::text)::"cerrojo"."lock_answer";
END
$$;

-- Tells a waiter that hears.
CREATE OR REPLACE FUNCTION "cerrojo"."lock_tell"(waiter "cerrojo"."lock_waiter", word text, ms bigint, token bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF waiter.channel <> '' THEN
        PERFORM pg_notify(waiter.channel, concat_ws(' ', word, ms, waiter.asked, token, replace(waiter.owner::text, '-', '')));
    END IF;
END
$$;

-- The first `number` waiters ask again within `ms`, also when whoever has the lock now is never heard of again.
CREATE OR REPLACE FUNCTION "cerrojo"."lock_warn"(of_name text, ms bigint, number integer) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    wake timestamptz := clock_timestamp() + ms * interval '1 ms';
    waiter "cerrojo"."lock_waiter";
BEGIN
    FOR waiter IN
        UPDATE "cerrojo"."lock_waiter" w SET wake_at = wake
        WHERE w.name = of_name AND w.wake_at > wake AND w.place IN (
            SELECT f.place FROM "cerrojo"."lock_waiter" f WHERE f.name = of_name ORDER BY f.place LIMIT number)
        RETURNING w.*
    LOOP
        PERFORM "cerrojo"."lock_tell"(waiter, 'wake', ms, NULL);
    END LOOP;
END
$$;

-- The first of those who are alive; the others before it leave.
CREATE OR REPLACE FUNCTION "cerrojo"."lock_first"(of_name text) RETURNS "cerrojo"."lock_waiter"
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    waiter "cerrojo"."lock_waiter";
BEGIN
    LOOP
        SELECT w.* INTO waiter FROM "cerrojo"."lock_waiter" w WHERE w.name = of_name ORDER BY w.place LIMIT 1;
        IF NOT FOUND OR waiter.alive_until > clock_timestamp() THEN
            RETURN waiter;
        END IF;
        DELETE FROM "cerrojo"."lock_waiter" w WHERE w.name = of_name AND w.place = waiter.place;
    END LOOP;
END
$$;

-- Makes the owner whom the first live waiter is; without one the lock is free. The row is locked FOR UPDATE.
--
-- To begin with it is the waiter's for 2 s at most, until its first renewal: one that has died holds up nobody for longer. The two behind it
-- look after it.
CREATE OR REPLACE FUNCTION "cerrojo"."lock_hand_over"(of_name text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    waiter "cerrojo"."lock_waiter" := "cerrojo"."lock_first"(of_name);
    ms bigint := least(waiter.ttl_ms, 2000);
    token bigint;
BEGIN
    IF waiter.owner IS NULL THEN
        UPDATE "cerrojo"."lock" l SET owner = NULL, waiting = false WHERE l.name = of_name;
        RETURN;
    END IF;
    DELETE FROM "cerrojo"."lock_waiter" w WHERE w.name = of_name AND w.place = waiter.place;
    UPDATE "cerrojo"."lock" l
    SET owner = waiter.owner, token = "cerrojo"."lock_next_token"(), granted_at = clock_timestamp(),
        expires_at = clock_timestamp() + ms * interval '1 ms', ttl_ms = waiter.ttl_ms, broken = false,
        identity = waiter.identity,
        waiting = EXISTS (SELECT FROM "cerrojo"."lock_waiter" w WHERE w.name = of_name)
    WHERE l.name = of_name
    RETURNING l.token INTO token;
    PERFORM "cerrojo"."lock_tell"(waiter, 'granted', ms, token);
    PERFORM "cerrojo"."lock_warn"(of_name, ms, 2);
END
$$;

-- Takes a place in the line, or gives a sign of life from it, and says who has the lock.
--
-- A waiter is gone when nothing has been heard of it for 30 s. It asks again each 5 to 10 s; soon after it came; and if it is one of the
-- first three, when the holder's TTL ends.
CREATE OR REPLACE FUNCTION "cerrojo"."lock_join"(
    held "cerrojo"."lock", by_owner uuid, for_ms bigint, as_identity text, on_channel text, at_asked bigint
) RETURNS "cerrojo"."lock_answer"
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    now timestamptz := clock_timestamp();
    again_ms bigint := 10000 * (1 + random()) / 2;
    mine bigint;
    before bigint;
BEGIN
    SELECT w.place INTO mine FROM "cerrojo"."lock_waiter" w WHERE w.name = held.name AND w.owner = by_owner;
    IF NOT FOUND THEN
        mine := nextval('"cerrojo"."lock_token"');
        again_ms := least(again_ms, 2000);
        INSERT INTO "cerrojo"."lock_waiter" VALUES
            (held.name, mine, by_owner, for_ms, as_identity, on_channel, at_asked, now, now);
    END IF;
    SELECT count(*) INTO before FROM (
        SELECT FROM "cerrojo"."lock_waiter" w WHERE w.name = held.name AND w.place < mine LIMIT 3) AS earlier;
    IF before < 3 THEN
        again_ms := least(again_ms, 1 + (1000 * extract(epoch FROM held.expires_at - now))::bigint);
    END IF;
    UPDATE "cerrojo"."lock_waiter" w
    SET ttl_ms = for_ms, identity = as_identity, channel = on_channel, asked = at_asked,
        wake_at = now + again_ms * interval '1 ms', alive_until = now + interval '30 s'
    WHERE w.name = held.name AND w.place = mine;
    IF NOT held.waiting THEN
        UPDATE "cerrojo"."lock" l SET waiting = true WHERE l.name = held.name;
    END IF;
    RETURN "cerrojo"."lock_held"(held, greatest(again_ms, 0));
END
$$;
