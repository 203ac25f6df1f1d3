DELETE FROM waiter WHERE owner = ?1
