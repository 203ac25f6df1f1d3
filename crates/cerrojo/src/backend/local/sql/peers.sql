SELECT id, alive_until, proof FROM peer
