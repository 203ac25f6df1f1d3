SELECT version, store_id::text AS store_id, is_moved, table_oid, pg_catalog.pg_is_in_recovery() AS is_standby,
    pg_catalog.current_setting('server_encoding') AS encoding,
    (extract(epoch FROM pg_catalog.clock_timestamp()) * 1000000)::bigint AS clock_us
FROM "cerrojo"."lock_about"()
