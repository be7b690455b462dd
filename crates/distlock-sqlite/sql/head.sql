-- ?1 key, ?2 line, ?3 how many
SELECT ticket, claim, queueing, client, owner, reason, weight, capacity, readers, reentry, fence_floor, since_us, attempts, ttl_us
FROM waiters WHERE key = ?1 AND exclusive = ?2 ORDER BY ticket LIMIT ?3
