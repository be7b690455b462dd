-- $1 the key after which to go on, $2 how many keys are looked at, $3 how long a counter outlives its
-- lock in us. Forgets keys that are free and whose fences are older than that: fences go on from the clock.
WITH page AS MATERIALIZED (
    SELECT key FROM keys WHERE key > $1 ORDER BY key LIMIT $2
),
idle AS MATERIALIZED (
    SELECT key FROM keys JOIN page USING (key)
    WHERE holders = 0 AND exclusive_waiters = 0 AND shared_waiters = 0
      AND greatest(counter, tombstones_until_us) + $3
          < (SELECT now_us())
    ORDER BY key FOR UPDATE OF keys SKIP LOCKED
),
forgotten AS (
    DELETE FROM keys WHERE key IN (SELECT key FROM idle)
)
SELECT key FROM page ORDER BY key DESC LIMIT 1
