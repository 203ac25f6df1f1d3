DELETE FROM lease WHERE name = ?1
