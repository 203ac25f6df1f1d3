\set owner random(1, 1000000000000)
INSERT INTO lease (name, owner, expires_at)
VALUES ('bench/' || :client_id, :owner, clock_timestamp() + interval '30 s')
ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, expires_at = excluded.expires_at
WHERE lease.expires_at < clock_timestamp()
RETURNING name;
DELETE FROM lease WHERE name = 'bench/' || :client_id AND owner = :owner;
