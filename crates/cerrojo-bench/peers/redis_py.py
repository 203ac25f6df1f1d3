"""Takes turns with the lock of redis-py, as it comes."""

import worker


def take(client, name, ttl_ms):
    lock = client.lock(name, timeout=ttl_ms / 1000)
    lock.acquire()
    return lock.release


worker.run(take)
