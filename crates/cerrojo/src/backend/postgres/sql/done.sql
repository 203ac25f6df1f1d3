-- Says that the schema is there, and closes it to all but its owner. grant.sql opens it to a role.

REVOKE ALL ON FUNCTION "cerrojo"."lock_about", "cerrojo"."lock_begin", "cerrojo"."lock_end", "cerrojo"."lock_next_token", "cerrojo"."lock_held",
    "cerrojo"."lock_tell", "cerrojo"."lock_warn", "cerrojo"."lock_first", "cerrojo"."lock_hand_over", "cerrojo"."lock_join",
    "cerrojo"."lock_ask", "cerrojo"."lock_acquire", "cerrojo"."lock_renew", "cerrojo"."lock_leave", "cerrojo"."lock_release",
    "cerrojo"."lock_break", "cerrojo"."lock_guard", "cerrojo"."lock_holders", "cerrojo"."lock_holder", "cerrojo"."lock_prune"
    FROM PUBLIC;

INSERT INTO "cerrojo"."lock_store" (version) VALUES (1) ON CONFLICT (one) DO UPDATE SET version = excluded.version;
