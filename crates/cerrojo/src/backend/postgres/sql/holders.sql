-- Who holds what, as others may know it. All of an owner would let them release.
CREATE OR REPLACE VIEW "cerrojo"."lock_holding" AS
    SELECT l.name, left(l.owner::text, 8) AS owner, l.token, l.identity,
        (1000 * extract(epoch FROM clock_timestamp() - l.granted_at))::bigint AS held_ms,
        (1000 * extract(epoch FROM l.expires_at - clock_timestamp()))::bigint AS ends_ms, l.broken
    FROM "cerrojo"."lock" l
    WHERE l.owner IS NOT NULL AND l.expires_at > clock_timestamp();

-- Up to `number` names behind `after`, by name.
CREATE OR REPLACE FUNCTION "cerrojo"."lock_holders"(after text, number bigint) RETURNS SETOF "cerrojo"."lock_holding"
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$ SELECT h.* FROM "cerrojo"."lock_holding" h WHERE h.name > after ORDER BY h.name LIMIT number $$;

-- Who holds this name.
CREATE OR REPLACE FUNCTION "cerrojo"."lock_holder"(of_name text) RETURNS SETOF "cerrojo"."lock_holding"
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$ SELECT h.* FROM "cerrojo"."lock_holding" h WHERE h.name = of_name $$;
