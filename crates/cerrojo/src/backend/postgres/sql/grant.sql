-- What a role needs to use the locks, and no more.
GRANT USAGE ON SCHEMA "cerrojo" TO "a_role";
GRANT EXECUTE ON FUNCTION "cerrojo"."lock_about", "cerrojo"."lock_acquire", "cerrojo"."lock_renew", "cerrojo"."lock_release",
    "cerrojo"."lock_break", "cerrojo"."lock_guard", "cerrojo"."lock_holders", "cerrojo"."lock_holder", "cerrojo"."lock_prune"
    TO "a_role";
