INSERT INTO peer (id, proof, alive_until) VALUES (?1, ?2, ?3) ON CONFLICT (id) DO UPDATE SET alive_until = excluded.alive_until
