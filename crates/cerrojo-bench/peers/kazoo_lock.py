"""Takes turns with the lock of kazoo, as it comes, and told of the nodes of Curator.

It is made once for each task: a new one makes sure of its path anew.
"""

import threading

import worker
from kazoo.client import KazooClient

own = threading.local()


def connect(job):
    client = KazooClient(hosts=job.url.removeprefix("zookeeper://"), timeout=job.ttl / 1000)
    client.start()
    return client


def take(client, name, ttl_ms):
    if not hasattr(own, "lock"):
        own.lock = client.Lock(f"/{name}", extra_lock_patterns=["-lock-"])
    own.lock.acquire()
    return own.lock.release


worker.run(take, connect)
