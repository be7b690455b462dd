INSERT INTO holders
    (key, claim, queueing, client, owner, reason, weight, capacity, readers, reentry, fence, since_us, until_us, kept,
     attempts)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)
ON CONFLICT (key, claim) DO UPDATE SET
    queueing = excluded.queueing, client = excluded.client, owner = excluded.owner, reason = excluded.reason,
    weight = excluded.weight, capacity = excluded.capacity, readers = excluded.readers,
    reentry = excluded.reentry, fence = excluded.fence, since_us = excluded.since_us,
    until_us = excluded.until_us, kept = excluded.kept, attempts = excluded.attempts
