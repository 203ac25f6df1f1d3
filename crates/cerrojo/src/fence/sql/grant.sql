-- What a role needs that touches resources. To adopt another store is its owner's.
GRANT USAGE ON SCHEMA "cerrojo" TO "a_role";
GRANT EXECUTE ON FUNCTION "cerrojo"."fence_admit" TO "a_role";
