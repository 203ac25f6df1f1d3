SELECT version, store_id::text AS store_id, pg_catalog.pg_is_in_recovery() AS is_standby,
    pg_catalog.current_setting('server_encoding') AS encoding
FROM "cerrojo"."lock_about"()
