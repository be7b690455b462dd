-- $1 key, $2 claims, $3 fence, $4 how many are read as they are. Of a larger crowd of sharers: those past
-- their time, the two whose lease ends first, the one whose lease ends last, and those that the verb is
-- about. A holder may appear twice.
WITH crowd AS MATERIALIZED (
    SELECT sharers > $4 AS is_crowd, now_us() AS now_us
    FROM keys WHERE key = $1
),
picked AS (
    SELECT * FROM holders
    WHERE key = $1 AND NOT (SELECT is_crowd FROM crowd)
    UNION ALL
    SELECT * FROM holders
    WHERE key = $1 AND (SELECT is_crowd FROM crowd)
      AND (until_us <= (SELECT now_us FROM crowd) OR claim = ANY ($2) OR fence = $3)
    UNION ALL
    (SELECT * FROM holders
     WHERE key = $1 AND (SELECT is_crowd FROM crowd) AND until_us > (SELECT now_us FROM crowd)
     ORDER BY until_us LIMIT 2)
    UNION ALL
    (SELECT * FROM holders
     WHERE key = $1 AND (SELECT is_crowd FROM crowd)
     ORDER BY until_us DESC LIMIT 1)
)
SELECT claim, queueing, client, owner, reason, weight, capacity, readers, reentry, fence, since_us, until_us, kept, attempts
FROM picked
