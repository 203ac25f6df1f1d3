BEGIN;
SELECT pg_advisory_xact_lock(hashtextextended('bench/' || :client_id, 0));
COMMIT;
