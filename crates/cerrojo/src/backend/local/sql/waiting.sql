SELECT waiter.owner, lease.expires_at, lease.proof FROM waiter LEFT JOIN lease ON lease.name = waiter.name WHERE waiter.peer = ?1
