-- $1 key, and all that is known of it
UPDATE keys SET counter = $2, holders = $3, sharers = $4, shared_weight = $5, sole = $6,
    exclusive_waiters = $7, shared_waiters = $8, tombstones_until_us = $9
WHERE key = $1
