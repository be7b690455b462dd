-- ?1 key, ?2 claim
SELECT ticket, claim, queueing, client, owner, reason, weight, capacity, readers, reentry, fence_floor, since_us, attempts, ttl_us
FROM waiters WHERE key = ?1 AND claim = ?2
