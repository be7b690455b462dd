-- $1 keys
SELECT claim, queueing, client, owner, reason, weight, capacity, readers, reentry, fence, since_us, until_us, kept, attempts, key
FROM holders WHERE key = ANY ($1)
