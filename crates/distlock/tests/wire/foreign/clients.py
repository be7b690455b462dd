"""redis-py's Lock and redlock-py, used as any other program would use them.

Arguments: which of the two ("lock" or "redlock"), then the ports of the servers.
Every line of input is a step, ["take", key, ttl_ms or null, wait_s], ["extend", key, ms] or
["release", key]; every line of output says whether it was done.
"""

import json
import sys

import redis
from redis.exceptions import LockError
from redis.lock import Lock
from redlock import Redlock

which, *ports = sys.argv[1:]
servers = [redis.Redis(host="127.0.0.1", port=int(port)) for port in ports]
redlock = Redlock(servers, retry_count=1, retry_delay=0.001)
held = {}


def take(key, ttl_ms, wait_s):
    if which == "redlock":
        lock = redlock.lock(key, ttl_ms)
        taken = bool(lock)
    else:
        lock = Lock(servers[0], key, timeout=ttl_ms and ttl_ms / 1000, sleep=0.02)
        taken = lock.acquire(blocking=wait_s > 0, blocking_timeout=wait_s)
    if taken:
        held[key] = lock
    return taken


def extend(key, ms):
    try:
        return which == "lock" and held[key].extend(ms / 1000, replace_ttl=True)
    except LockError:
        return False


def release(key):
    try:
        lock = held.pop(key)
        redlock.unlock(lock) if which == "redlock" else lock.release()
        return True
    except LockError:
        return False


print("true", flush=True)
for line in sys.stdin:
    verb, *arguments = json.loads(line)
    step = {"take": take, "extend": extend, "release": release}[verb]
    print(json.dumps(step(*arguments)), flush=True)
