DELETE FROM lease WHERE name = ?1 AND owner = ?2 RETURNING expires_at
