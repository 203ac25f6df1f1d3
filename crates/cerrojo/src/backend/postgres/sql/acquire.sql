-- Acquires a batch of names, each for its owner: who holds it already is granted it again, with the same token and the TTL set anew.
--
-- One array for each column of the batch; names in order, each once. `channels`: NULL: the request does not wait; empty: it waits and
-- polls; else it waits, and is told there. `asked` is the asker's own time. `until_us`: when the server's clock shows more than that many
-- microseconds since the epoch, the asker has given up, and nothing is done: every outcome is then `late`. `patience_ms`: see lock_begin.
-- `table_oid`: what lock_about has said: tables that were made anew are another store, and grant nothing to those who know the old one.

-- One name that was not simply free. A row that somebody else is making is waited for for `making_ms`.
CREATE OR REPLACE FUNCTION "cerrojo"."lock_ask"(
    of_name text, by_owner uuid, for_ms bigint, as_identity text, on_channel text, at_asked bigint, making_ms text
) RETURNS "cerrojo"."lock_answer"
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    held "cerrojo"."lock";
    busy "cerrojo"."lock_answer";
    granted "cerrojo"."lock_answer";
    ignored text;
    is_new boolean;
    -- Judged once for each lock that is taken: what ends between two looks at the clock must not be granted under the weaker lock.
    is_free boolean;
BEGIN
    busy.outcome := 'busy';
    granted.outcome := 'granted';
    SELECT l.* INTO held FROM "cerrojo"."lock" l WHERE l.name = of_name;
    is_new := NOT FOUND;
    IF is_new THEN
        -- Free at first, and granted below: a token taken here would have been taken before the row was locked.
        ignored := set_config('lock_timeout', making_ms, true);
        BEGIN
            INSERT INTO "cerrojo"."lock" (name) VALUES (of_name) ON CONFLICT DO NOTHING;
        EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
            RETURN busy;
        END;
        ignored := set_config('lock_timeout', '1000', true);
    ELSIF held.owner IS NOT NULL AND held.expires_at > clock_timestamp() THEN
        IF on_channel IS NULL AND (held.owner <> by_owner OR held.broken)
            AND held.expires_at <= clock_timestamp() + held.ttl_ms * interval '1 ms' THEN
            RETURN "cerrojo"."lock_held"(held, 0);
        END IF;
        -- A place in the line, and a new TTL, leave the key alone: a guarded transaction is in nobody's way here.
        SELECT l.* INTO held FROM "cerrojo"."lock" l WHERE l.name = of_name FOR NO KEY UPDATE SKIP LOCKED;
        IF NOT FOUND THEN
            RETURN busy;
        END IF;
    END IF;
    is_free := is_new OR held.owner IS NULL OR held.expires_at <= clock_timestamp();
    IF is_free THEN
        SELECT l.* INTO held FROM "cerrojo"."lock" l WHERE l.name = of_name FOR UPDATE SKIP LOCKED;
        IF NOT FOUND THEN
            RETURN busy;
        END IF;
        is_free := held.owner IS NULL OR held.expires_at <= clock_timestamp();
        -- Newcomers do not overtake: what is free is the first waiter's.
        IF is_free AND held.waiting AND ("cerrojo"."lock_first"(of_name)).owner <> by_owner THEN
            PERFORM "cerrojo"."lock_hand_over"(of_name);
            RETURN busy;
        END IF;
    END IF;
    IF NOT is_free THEN
        IF held.owner = by_owner AND NOT held.broken THEN
            UPDATE "cerrojo"."lock" l SET expires_at = clock_timestamp() + for_ms * interval '1 ms', ttl_ms = for_ms
            WHERE l.name = of_name;
            granted.token := held.token;
            RETURN granted;
        END IF;
        -- The clock was set back: nobody waits until it is there again.
        IF held.expires_at > clock_timestamp() + held.ttl_ms * interval '1 ms' THEN
            held.expires_at := clock_timestamp() + held.ttl_ms * interval '1 ms';
            UPDATE "cerrojo"."lock" l SET expires_at = held.expires_at WHERE l.name = of_name;
        END IF;
        IF on_channel IS NULL THEN
            RETURN "cerrojo"."lock_held"(held, 0);
        END IF;
        RETURN "cerrojo"."lock_join"(held, by_owner, for_ms, as_identity, on_channel, at_asked);
    END IF;
    IF held.waiting THEN
        DELETE FROM "cerrojo"."lock_waiter" w WHERE w.name = of_name AND w.owner = by_owner;
        PERFORM "cerrojo"."lock_warn"(of_name, for_ms + 1, 2);
    END IF;
    UPDATE "cerrojo"."lock" l
    SET owner = by_owner, token = "cerrojo"."lock_next_token"(), granted_at = clock_timestamp(),
        expires_at = clock_timestamp() + for_ms * interval '1 ms', ttl_ms = for_ms, broken = false,
        identity = as_identity,
        waiting = held.waiting AND EXISTS (SELECT FROM "cerrojo"."lock_waiter" w WHERE w.name = of_name)
    WHERE l.name = of_name
    RETURNING l.token INTO granted.token;
    RETURN granted;
END
$$;

CREATE OR REPLACE FUNCTION "cerrojo"."lock_acquire"(
    names text[], owners uuid[], ttls_ms bigint[], identities text[], channels text[], asked bigint[], table_oid bigint, until_us bigint,
    patience_ms bigint,
    OUT requests bigint[], OUT outcomes text[], OUT tokens bigint[], OUT held text[], OUT clock_us bigint
)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
    SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
    free bigint[];
    answer "cerrojo"."lock_answer";
    is_lasting boolean;
    making_ms text := '50';
    ask record;
BEGIN
    IF table_oid <> '"cerrojo"."lock"'::regclass::oid::bigint THEN
        RAISE EXCEPTION 'these tables are another store than those that were greeted' USING ERRCODE = 'CR006';
    END IF;
    clock_us := "cerrojo"."lock_begin"(names[1], patience_ms);
    IF clock_us > until_us THEN
        SELECT array_agg(r.request), array_agg('late'::text), array_agg(NULL::bigint), array_agg(NULL::text)
        INTO requests, outcomes, tokens, held FROM unnest(names) WITH ORDINALITY AS r (name, request);
        RETURN;
    END IF;
    -- A statement of its own, so that the next one sees what was committed before these rows were locked.
    free := ARRAY(
        SELECT r.request FROM unnest(names) WITH ORDINALITY AS r (name, request)
        JOIN "cerrojo"."lock" l ON l.name = r.name
        WHERE NOT l.waiting AND (l.owner IS NULL OR l.expires_at <= clock_timestamp())
        ORDER BY l.name FOR UPDATE OF l SKIP LOCKED);
    WITH granted AS (
        UPDATE "cerrojo"."lock" l
        SET owner = r.owner, token = "cerrojo"."lock_next_token"(), granted_at = clock_timestamp(),
            expires_at = clock_timestamp() + r.ttl_ms * interval '1 ms', ttl_ms = r.ttl_ms, broken = false,
            identity = r.identity
        FROM unnest(names, owners, ttls_ms, identities) WITH ORDINALITY AS r (name, owner, ttl_ms, identity, request)
        WHERE l.name = r.name AND r.request = ANY (free)
        RETURNING r.request, l.token)
    SELECT array_agg(g.request), array_agg('granted'::text), array_agg(g.token), array_agg(NULL::text)
    INTO requests, outcomes, tokens, held FROM granted g;
    IF cardinality(requests) = cardinality(names) THEN
        PERFORM "cerrojo"."lock_end"(true);
        RETURN;
    END IF;
    is_lasting := requests IS NOT NULL;
    FOR ask IN
        SELECT * FROM unnest(names, owners, ttls_ms, identities, channels, asked) WITH ORDINALITY
            AS r (name, owner, ttl_ms, identity, channel, asked, request)
        WHERE requests IS NULL OR r.request <> ALL (requests) ORDER BY r.name
    LOOP
        answer := "cerrojo"."lock_ask"(
            ask.name, ask.owner, ask.ttl_ms, ask.identity, ask.channel, ask.asked, making_ms);
        -- Once for all that are being made: the other names of the batch are not delayed.
        IF answer.outcome = 'busy' THEN
            making_ms := '1';
        END IF;
        requests := requests || ask.request;
        outcomes := outcomes || answer.outcome;
        tokens := tokens || answer.token;
        held := held || answer.held;
        is_lasting := is_lasting OR answer.outcome <> 'held';
    END LOOP;
    PERFORM "cerrojo"."lock_end"(is_lasting);
END
$$;
