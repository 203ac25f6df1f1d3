-- One at a time, and never an older version over a newer one.
SELECT pg_advisory_xact_lock(hashtextextended('"cerrojo"', 0));
DO $$
DECLARE
    found_version integer := 0;
BEGIN
    IF to_regclass('"cerrojo"."lock_store"') IS NOT NULL THEN
        SELECT version INTO found_version FROM "cerrojo"."lock_store";
    END IF;
    IF found_version > SUPPORTED THEN
        RAISE EXCEPTION 'the store has schema %, which is newer than SUPPORTED', found_version USING ERRCODE = 'CR004';
    END IF;
END
$$;
