UPDATE lease SET expires_at = ?4 WHERE name = ?1 AND owner = ?2 AND expires_at > ?3 AND broken = 0
