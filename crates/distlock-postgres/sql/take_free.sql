-- Takes a key that is free, for an exclusive ask. Finds nothing to return if it is not free: then the
-- law decides. $1 key, $2 claim, $3 queueing, $4 client, $5 owner, $6 reason, $7 weight, $8 capacity,
-- $9 readers, $10 reentry, $11 attempts, $12 ttl in us, $13 the fence asked for or NULL, $14 a fence that
-- this client has seen, $15 the largest fence
WITH clock AS (
    SELECT now_us() AS us
),
latched AS (
    INSERT INTO keys AS k (key, counter, holders, sole)
    SELECT $1, coalesce($13, greatest(us, $14 + 1)), 1, $2 FROM clock
    ON CONFLICT (key) DO UPDATE
    SET counter = greatest(k.counter + 1, excluded.counter), holders = 1, sole = excluded.sole
    WHERE k.holders = 0 AND k.exclusive_waiters = 0 AND k.shared_waiters = 0
      AND k.tombstones_until_us <= (SELECT us FROM clock)
      AND greatest(k.counter + 1, excluded.counter) <= $15
    RETURNING counter
)
INSERT INTO holders (key, claim, queueing, client, owner, reason, weight, capacity, readers, reentry, attempts, fence,
    since_us, until_us, kept)
SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, counter,
       now_us(),
       now_us() + $12, false
FROM latched
RETURNING fence, since_us
