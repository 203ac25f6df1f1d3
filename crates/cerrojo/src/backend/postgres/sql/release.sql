-- Takes back what the owners hold or wait for. Whoever is first in a line is made the owner in the same transaction.

-- Takes an owner that does not hold the lock out of the line. Its request may be in a transaction that is not over, the connection being lost:
-- then the row is locked, or is being made, and the owner asks again.
CREATE OR REPLACE FUNCTION "cerrojo"."lock_leave"(of_name text, by_owner uuid) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    held "cerrojo"."lock";
    ignored text;
BEGIN
    IF NOT EXISTS (SELECT FROM "cerrojo"."lock" l WHERE l.name = of_name) THEN
        ignored := set_config('lock_timeout', '1', true);
        BEGIN
            INSERT INTO "cerrojo"."lock" (name) VALUES (of_name);
            DELETE FROM "cerrojo"."lock" l WHERE l.name = of_name;
        EXCEPTION WHEN lock_not_available OR unique_violation OR deadlock_detected THEN
            RETURN 'busy';
        END;
        ignored := set_config('lock_timeout', '1000', true);
        RETURN 'gone';
    END IF;
    SELECT l.* INTO held FROM "cerrojo"."lock" l WHERE l.name = of_name FOR NO KEY UPDATE SKIP LOCKED;
    IF NOT FOUND OR held.owner = by_owner THEN
        RETURN 'busy';
    END IF;
    DELETE FROM "cerrojo"."lock_waiter" w WHERE w.name = of_name AND w.owner = by_owner;
    -- Whoever moves up looks after the holder, as those before it did.
    IF FOUND AND held.owner IS NOT NULL AND held.expires_at > clock_timestamp() THEN
        PERFORM "cerrojo"."lock_warn"(of_name, 1 + (1000 * extract(epoch FROM held.expires_at - clock_timestamp()))::bigint, 3);
    ELSIF FOUND THEN
        PERFORM "cerrojo"."lock_warn"(of_name, 0, 1);
    END IF;
    RETURN 'gone';
END
$$;

CREATE OR REPLACE FUNCTION "cerrojo"."lock_release"(
    names text[], owners uuid[], patience_ms bigint, OUT requests bigint[], OUT outcomes text[], OUT tokens bigint[], OUT held text[], OUT clock_us bigint
)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
    SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
    own bigint[];
    outcome text;
    is_lasting boolean := false;
    ask record;
BEGIN
    clock_us := "cerrojo"."lock_begin"(names[1], patience_ms);
    own := ARRAY(
        SELECT r.request FROM unnest(names, owners) WITH ORDINALITY AS r (name, owner, request)
        JOIN "cerrojo"."lock" l ON l.name = r.name
        WHERE l.owner = r.owner ORDER BY l.name FOR UPDATE OF l SKIP LOCKED);
    WITH released AS (
        UPDATE "cerrojo"."lock" l SET owner = NULL
        FROM unnest(names) WITH ORDINALITY AS r (name, request)
        WHERE l.name = r.name AND r.request = ANY (own) AND NOT l.waiting
        RETURNING r.request, l.expires_at > clock_timestamp() AS was_live)
    SELECT array_agg(r.request), array_agg(CASE WHEN r.was_live THEN 'released' ELSE 'gone' END),
        array_agg(NULL::bigint), array_agg(NULL::text)
    INTO requests, outcomes, tokens, held FROM released r;
    IF cardinality(requests) = cardinality(names) THEN
        PERFORM "cerrojo"."lock_end"(false);
        RETURN;
    END IF;
    FOR ask IN
        SELECT r.*, r.request = ANY (own) AS is_own, l.expires_at > clock_timestamp() AS is_live
        FROM unnest(names, owners) WITH ORDINALITY AS r (name, owner, request)
        LEFT JOIN "cerrojo"."lock" l ON l.name = r.name
        WHERE requests IS NULL OR r.request <> ALL (requests) ORDER BY r.name
    LOOP
        IF ask.is_own THEN
            PERFORM "cerrojo"."lock_hand_over"(ask.name);
            outcome := CASE WHEN ask.is_live THEN 'released' ELSE 'gone' END;
        ELSE
            outcome := "cerrojo"."lock_leave"(ask.name, ask.owner);
        END IF;
        requests := requests || ask.request;
        outcomes := outcomes || outcome;
        tokens := tokens || NULL::bigint;
        held := held || NULL::text;
        is_lasting := is_lasting OR ask.is_own;
    END LOOP;
    PERFORM "cerrojo"."lock_end"(is_lasting);
END
$$;
