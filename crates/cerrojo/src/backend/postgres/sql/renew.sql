-- Sets the TTL anew of what the owners hold. Never creates, and changes no key column: guarded transactions are in nobody's way here.
CREATE OR REPLACE FUNCTION "cerrojo"."lock_renew"(
    names text[], owners uuid[], ttls_ms bigint[], patience_ms bigint, OUT requests bigint[], OUT outcomes text[], OUT tokens bigint[], OUT held text[], OUT clock_us bigint
)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
    SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
    own bigint[];
    ask record;
BEGIN
    clock_us := "cerrojo"."lock_begin"(names[1], patience_ms);
    own := ARRAY(
        SELECT r.request FROM unnest(names, owners) WITH ORDINALITY AS r (name, owner, request)
        JOIN "cerrojo"."lock" l ON l.name = r.name
        WHERE l.owner = r.owner AND NOT l.broken AND l.expires_at > clock_timestamp()
        ORDER BY l.name FOR NO KEY UPDATE OF l SKIP LOCKED);
    WITH renewed AS (
        UPDATE "cerrojo"."lock" l SET expires_at = clock_timestamp() + r.ttl_ms * interval '1 ms', ttl_ms = r.ttl_ms
        FROM unnest(names, ttls_ms) WITH ORDINALITY AS r (name, ttl_ms, request)
        WHERE l.name = r.name AND r.request = ANY (own)
        RETURNING r.request, l.token)
    SELECT array_agg(r.request), array_agg('granted'::text), array_agg(r.token), array_agg(NULL::text)
    INTO requests, outcomes, tokens, held FROM renewed r;
    PERFORM "cerrojo"."lock_end"(requests IS NOT NULL);
    IF cardinality(requests) = cardinality(names) THEN
        RETURN;
    END IF;
    FOR ask IN
        SELECT r.request, CASE WHEN l.name IS NULL THEN 'gone' ELSE 'busy' END AS outcome
        FROM unnest(names, owners) WITH ORDINALITY AS r (name, owner, request)
        LEFT JOIN "cerrojo"."lock" l
            ON l.name = r.name AND l.owner = r.owner AND NOT l.broken AND l.expires_at > clock_timestamp()
        WHERE r.request <> ALL (own)
    LOOP
        requests := requests || ask.request;
        outcomes := outcomes || ask.outcome;
        tokens := tokens || NULL::bigint;
        held := held || NULL::text;
    END LOOP;
END
$$;
