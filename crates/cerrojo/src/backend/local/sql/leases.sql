SELECT name, owner, token, granted_at, expires_at, broken, identity, proof FROM lease WHERE name > ?1 AND expires_at > ?2 ORDER BY name LIMIT ?3
