SELECT name, owner, token, granted_at, expires_at, broken, identity, proof FROM lease
