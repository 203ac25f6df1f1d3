-- Says that the schema is there, and closes it to all but its owner. grant.sql opens it to a role. A store that was brought here from
-- another cluster becomes another store: its tokens begin anew.

REVOKE ALL ON FUNCTION "cerrojo"."lock_about", "cerrojo"."lock_begin", "cerrojo"."lock_end", "cerrojo"."lock_next_token", "cerrojo"."lock_held",
    "cerrojo"."lock_tell", "cerrojo"."lock_warn", "cerrojo"."lock_first", "cerrojo"."lock_hand_over", "cerrojo"."lock_join",
    "cerrojo"."lock_ask", "cerrojo"."lock_acquire", "cerrojo"."lock_renew", "cerrojo"."lock_leave", "cerrojo"."lock_release",
    "cerrojo"."lock_break", "cerrojo"."lock_guard", "cerrojo"."lock_holders", "cerrojo"."lock_holder", "cerrojo"."lock_prune"
    FROM PUBLIC;

INSERT INTO "cerrojo"."lock_store" AS s (version, cluster) SELECT 1, system_identifier FROM pg_control_system()
ON CONFLICT (one) DO UPDATE SET version = excluded.version, cluster = excluded.cluster,
    store_id = CASE WHEN s.cluster = excluded.cluster THEN s.store_id ELSE excluded.store_id END;
