"""What the workers of Python libraries share: the line protocol, and what is done inside the lock.

The protocol is that of `cerrojo_bench::fleet`: `ready` is printed, a line on standard input starts the turns, they end
with the standard input or after `--rounds`, and then all of them are printed as one line of JSON.
"""

import argparse
import json
import sys
import threading
import time

import redis


def redis_client(job):
    return connected(job.nodes)


def run(take, connect=redis_client):
    """Takes turns; `take(client, name, ttl_ms)` waits for a lock and answers how to release it."""
    job = parsed()
    client = connect(job)
    counter = connected(job.counter_at) if job.counter else None
    print("ready", flush=True)
    sys.stdin.readline()
    over = threading.Event()
    threading.Thread(target=tell_end, args=(over,), daemon=True).start()
    turns = in_threads(job, lambda task: take_turns(client, counter, take, job, task, over))
    print(json.dumps(turns), flush=True)


def parsed():
    parser = argparse.ArgumentParser()
    # These libraries know one server only.
    for option in ("--nodes", "--counter-at", "--rounds", "--tasks"):
        parser.add_argument(option, type=int, default=1)
    for option in ("--hold", "--between"):
        parser.add_argument(option, type=float, default=0, help="milliseconds")
    parser.add_argument("--ttl", type=int, default=30_000, help="milliseconds")
    for option in ("--name", "--id", "--counter", "--url"):
        parser.add_argument(option, default="")
    parser.add_argument("--own-names", action="store_true")
    return parser.parse_args()


def connected(port):
    # No time limit on the socket: a lock that blocks in the server may wait for long.
    client = redis.Redis(host="127.0.0.1", port=port, socket_timeout=None)
    client.ping()
    return client


def tell_end(over):
    sys.stdin.read()
    over.set()


def in_threads(job, work):
    """All turns of all tasks; a task that fails ends the program."""
    turns, failures = [], []

    def guarded(task):
        try:
            turns.extend(work(task))
        except Exception as failure:
            failures.append(failure)

    threads = [threading.Thread(target=guarded, args=(task,)) for task in range(job.tasks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return turns


def take_turns(client, counter, take, job, task, over):
    name = f"{job.name}/{task}" if job.own_names else job.name
    turns = []
    while not over.is_set() and len(turns) < job.rounds:
        asked = time.monotonic_ns()
        release = take(client, name, job.ttl)
        acquired = time.monotonic_ns()
        work(counter, job)
        turns.append([task, asked, acquired, time.monotonic_ns()])
        release()
        if job.between:
            over.wait(job.between / 1000)
    return turns


def work(counter, job):
    """Reads, adds and writes as carelessly as it can: only the lock around it makes it right."""
    before = int(counter.get(job.counter) or 0) if counter else 0
    if job.hold:
        time.sleep(job.hold / 1000)
    if counter:
        counter.set(job.counter, before + 1)
        counter.rpush(f"{job.counter}/order", job.id)
