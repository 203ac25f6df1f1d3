DELETE FROM waiter WHERE peer = ?1 RETURNING name
