INSERT INTO waiters
    (key, exclusive, ticket, claim, queueing, client, owner, reason, weight, capacity, readers, reentry, fence_floor, since_us,
     attempts, ttl_us)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)
ON CONFLICT (key, exclusive, ticket) DO UPDATE SET
    client = excluded.client, attempts = excluded.attempts
