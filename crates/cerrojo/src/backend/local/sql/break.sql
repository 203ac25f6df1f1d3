UPDATE lease SET broken = 1 WHERE name = ?1
