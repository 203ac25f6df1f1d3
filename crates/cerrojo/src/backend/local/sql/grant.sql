INSERT OR REPLACE INTO lease (name, owner, token, granted_at, expires_at, broken, identity, proof) VALUES (?1, ?2, ?3, ?4, ?5, 0, ?6, ?7)
