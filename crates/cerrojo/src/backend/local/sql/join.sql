INSERT INTO waiter (name, owner, peer) VALUES (?1, ?2, ?3) ON CONFLICT (owner) DO NOTHING
