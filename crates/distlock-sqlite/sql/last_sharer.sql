-- ?1 key, ?2 now: the one whose lease ends last
SELECT claim, queueing, client, owner, reason, weight, capacity, readers, reentry, fence, since_us, until_us, kept, attempts
FROM holders WHERE key = ?1 AND weight < capacity AND until_us > ?2 ORDER BY until_us DESC LIMIT 1
