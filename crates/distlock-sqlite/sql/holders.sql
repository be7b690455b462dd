-- ?1 key, ?2 how many at most
SELECT claim, queueing, client, owner, reason, weight, capacity, readers, reentry, fence, since_us, until_us, kept, attempts
FROM holders WHERE key = ?1 LIMIT ?2
