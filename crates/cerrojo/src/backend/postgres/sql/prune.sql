-- Looks at up to `number` names behind `after`, by name, and removes those that have been free for as long as `idle_ms`, and waiters that
-- are gone. Tokens come from a sequence, so they do not start anew. Rows that somebody's transaction holds are left for another time.
CREATE OR REPLACE FUNCTION "cerrojo"."lock_prune"(
    after text, number bigint, idle_ms bigint, OUT removed bigint, OUT seen bigint, OUT last text
)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    free text[];
BEGIN
    PERFORM "cerrojo"."lock_begin"(NULL, 0);
    SELECT count(*), max(s.name) INTO seen, last FROM (
        SELECT l.name FROM "cerrojo"."lock" l WHERE l.name > after ORDER BY l.name LIMIT number) AS s;
    free := ARRAY(
        SELECT l.name FROM "cerrojo"."lock" l
        WHERE l.name > after AND l.name <= last AND (l.owner IS NULL OR l.expires_at <= clock_timestamp())
            AND l.granted_at <= clock_timestamp() - idle_ms * interval '1 ms'
        ORDER BY l.name FOR UPDATE SKIP LOCKED);
    DELETE FROM "cerrojo"."lock_waiter" w WHERE w.name = ANY (free) AND w.alive_until <= clock_timestamp();
    DELETE FROM "cerrojo"."lock" l
    WHERE l.name = ANY (free) AND NOT EXISTS (SELECT FROM "cerrojo"."lock_waiter" w WHERE w.name = l.name);
    GET DIAGNOSTICS removed = ROW_COUNT;
    PERFORM "cerrojo"."lock_end"(false);
END
$$;
