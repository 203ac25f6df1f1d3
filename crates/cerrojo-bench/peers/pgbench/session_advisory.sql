SELECT pg_try_advisory_lock(hashtextextended('bench/' || :client_id, 0));
SELECT pg_advisory_unlock(hashtextextended('bench/' || :client_id, 0));
