-- $1 key, then an array for each column. Of a place only its client and its attempts ever change.
INSERT INTO waiters (key, exclusive, ticket, claim, queueing, client, owner, reason, weight, capacity, readers, reentry,
    fence_floor, since_us, ttl_us, attempts)
SELECT $1, * FROM unnest($2::boolean[], $3::bigint[], $4::bytea[], $5::text[], $6::bytea[], $7::text[], $8::text[],
    $9::bigint[], $10::bigint[], $11::text[], $12::bytea[], $13::bigint[], $14::bigint[], $15::bigint[], $16::bytea[])
ON CONFLICT (key, exclusive, ticket) DO UPDATE SET client = excluded.client, attempts = excluded.attempts
