-- Takes a name from its holder, who is told; nothing is told when nobody has it. `at_once`: it is the next one's now; else no renewal is
-- taken any more.
CREATE OR REPLACE FUNCTION "cerrojo"."lock_break"(of_name text, at_once boolean) RETURNS SETOF "cerrojo"."lock_answer"
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    held "cerrojo"."lock";
    answer "cerrojo"."lock_answer";
BEGIN
    PERFORM "cerrojo"."lock_begin"(NULL, 0);
    IF NOT EXISTS (
        SELECT FROM "cerrojo"."lock" l
        WHERE l.name = of_name AND l.owner IS NOT NULL AND l.expires_at > clock_timestamp()) THEN
        RETURN;
    END IF;
    IF at_once THEN
        SELECT l.* INTO held FROM "cerrojo"."lock" l WHERE l.name = of_name FOR UPDATE SKIP LOCKED;
    ELSE
        SELECT l.* INTO held FROM "cerrojo"."lock" l WHERE l.name = of_name FOR NO KEY UPDATE SKIP LOCKED;
    END IF;
    IF NOT FOUND THEN
        answer.outcome := 'busy';
        RETURN NEXT answer;
    ELSIF held.owner IS NOT NULL AND held.expires_at > clock_timestamp() THEN
        held.broken := true;
        RETURN NEXT "cerrojo"."lock_held"(held, 0);
        IF at_once THEN
            PERFORM "cerrojo"."lock_hand_over"(of_name);
        ELSE
            UPDATE "cerrojo"."lock" l SET broken = true WHERE l.name = of_name;
        END IF;
        PERFORM "cerrojo"."lock_end"(true);
    END IF;
END
$$;
