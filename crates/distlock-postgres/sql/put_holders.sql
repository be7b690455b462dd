-- $1 key, then an array for each column
INSERT INTO holders (key, claim, queueing, client, owner, reason, weight, capacity, readers, reentry, fence, since_us,
    until_us, kept, attempts)
SELECT $1, * FROM unnest($2::bytea[], $3::text[], $4::bytea[], $5::text[], $6::text[], $7::bigint[], $8::bigint[],
    $9::text[], $10::bytea[], $11::bigint[], $12::bigint[], $13::bigint[], $14::boolean[], $15::bytea[])
ON CONFLICT (key, claim) DO UPDATE SET
    queueing = excluded.queueing, client = excluded.client, owner = excluded.owner, reason = excluded.reason,
    weight = excluded.weight, capacity = excluded.capacity, readers = excluded.readers,
    reentry = excluded.reentry, fence = excluded.fence, since_us = excluded.since_us,
    until_us = excluded.until_us, kept = excluded.kept, attempts = excluded.attempts
