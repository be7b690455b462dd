-- $1 key: all of its holders
SELECT claim, queueing, client, owner, reason, weight, capacity, readers, reentry, fence, since_us, until_us, kept, attempts
FROM holders WHERE key = $1
