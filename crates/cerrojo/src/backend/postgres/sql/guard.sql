-- The first statement of a transaction that only the holder of a lock may make, in the same database:
--
--     BEGIN;
--     SELECT "cerrojo"."lock_guard"(name, owner, token);
--     ...
--     COMMIT;
--
-- It fails with SQLSTATE CR002 (stale: a greater token has been granted, which is the error's detail) or CR003 (not held any more) when the lock
-- is not the owner's by this very token. Otherwise nobody is granted the lock until the transaction has ended, whatever the clocks say: a grant
-- locks the row FOR UPDATE, which waits for the lock that is taken here. Renewals pass.
--
-- A client that is idle inside the transaction for longer than the TTL, frozen or cut off, is disconnected by the server, and its transaction has
-- changed nothing; so is one that does not read what it has asked for. A shorter limit that the session has already stays.
CREATE OR REPLACE FUNCTION "cerrojo"."lock_guard"(of_name text, by_owner uuid, with_token bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    ignored text;
    for_ms bigint;
    greatest_token bigint;
    time_limit text;
BEGIN
    SELECT l.ttl_ms INTO for_ms FROM "cerrojo"."lock" l
    WHERE l.name = of_name AND l.owner = by_owner AND l.token = with_token AND l.expires_at > clock_timestamp()
    FOR KEY SHARE;
    IF FOUND THEN
        FOREACH time_limit IN ARRAY ARRAY['idle_in_transaction_session_timeout', 'tcp_user_timeout'] LOOP
            -- One of them is shown without its unit.
            IF current_setting(time_limit) = '0'
                OR 1000 * extract(epoch FROM regexp_replace(current_setting(time_limit), '^(\d+)$', '\1ms')::interval) > for_ms THEN
                ignored := set_config(time_limit, for_ms::text, true);
            END IF;
        END LOOP;
        RETURN;
    END IF;
    SELECT l.token INTO greatest_token FROM "cerrojo"."lock" l WHERE l.name = of_name;
    IF greatest_token > with_token THEN
        RAISE EXCEPTION 'stale: token % was presented, % has been granted already', with_token, greatest_token
            USING ERRCODE = 'CR002', DETAIL = greatest_token::text;
    END IF;
    RAISE EXCEPTION 'the lock is not held by this owner any more' USING ERRCODE = 'CR003';
END
$$;
