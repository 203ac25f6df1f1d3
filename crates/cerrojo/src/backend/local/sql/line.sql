SELECT waiter.owner, waiter.peer, peer.alive_until, peer.proof FROM waiter LEFT JOIN peer ON peer.id = waiter.peer WHERE waiter.name = ?1 ORDER BY waiter.place
