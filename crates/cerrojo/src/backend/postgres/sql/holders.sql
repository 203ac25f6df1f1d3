-- Who holds what: up to `number` names behind `after`, by name.
CREATE OR REPLACE FUNCTION "cerrojo"."lock_holders"(after text, number bigint)
RETURNS TABLE (name text, owner text, token bigint, identity text, held_ms bigint, ends_ms bigint, broken boolean)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT l.name, left(l.owner::text, 8), l.token, l.identity,
        (1000 * extract(epoch FROM clock_timestamp() - l.granted_at))::bigint,
        (1000 * extract(epoch FROM l.expires_at - clock_timestamp()))::bigint, l.broken
    FROM "cerrojo"."lock" l
    WHERE l.name > after AND l.owner IS NOT NULL AND l.expires_at > clock_timestamp()
    ORDER BY l.name LIMIT number
$$;

-- Who holds this name.
CREATE OR REPLACE FUNCTION "cerrojo"."lock_holder"(of_name text)
RETURNS TABLE (name text, owner text, token bigint, identity text, held_ms bigint, ends_ms bigint, broken boolean)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT l.name, left(l.owner::text, 8), l.token, l.identity,
        (1000 * extract(epoch FROM clock_timestamp() - l.granted_at))::bigint,
        (1000 * extract(epoch FROM l.expires_at - clock_timestamp()))::bigint, l.broken
    FROM "cerrojo"."lock" l
    WHERE l.name = of_name AND l.owner IS NOT NULL AND l.expires_at > clock_timestamp()
$$;
