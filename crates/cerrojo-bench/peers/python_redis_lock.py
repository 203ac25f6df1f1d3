"""Takes turns with the lock of python-redis-lock, as it comes."""

import redis_lock
import worker


def take(client, name, ttl_ms):
    lock = redis_lock.Lock(client, name, expire=max(ttl_ms // 1000, 1))
    lock.acquire()
    return lock.release


worker.run(take)
