-- $1 keys
SELECT w.exclusive, w.ticket, w.claim, w.queueing, w.client, w.owner, w.reason, w.weight, w.capacity, w.readers, w.reentry, w.fence_floor, w.since_us, w.ttl_us, w.attempts,
       c.until_us, c.places, w.key
FROM waiters w JOIN clients c USING (key, client) WHERE w.key = ANY ($1)
