-- ?1 key
SELECT ticket, claim, queueing, client, owner, reason, weight, capacity, readers, reentry, fence_floor, since_us, attempts, ttl_us
FROM waiters WHERE key = ?1
