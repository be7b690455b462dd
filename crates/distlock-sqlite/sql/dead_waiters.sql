-- ?1 key, ?2 now: the places of clients that have not been heard of in time
SELECT ticket, claim, queueing, client, owner, reason, weight, capacity, readers, reentry, fence_floor, since_us, attempts, ttl_us
FROM clients JOIN waiters USING (key, client) WHERE clients.key = ?1 AND until_us <= ?2
