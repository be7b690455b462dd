-- $1 keys, $2 claims, $3 spans in us. Renews exclusive holds, which touches nothing but their rows; says
-- which were renewed, by their numbers from one on, and their fences. Leaves out what another session has
-- locked at this moment: one hold that is stuck delays no other.
WITH clock AS MATERIALIZED (
    SELECT now_us() AS us
),
found AS MATERIALIZED (
    SELECT key, claim, asked.span, asked.nth
    FROM unnest($1::bytea[], $2::bytea[], $3::bigint[]) WITH ORDINALITY AS asked (key, claim, span, nth)
    JOIN holders USING (key, claim)
    WHERE weight = capacity AND NOT kept AND until_us > (SELECT us FROM clock)
    FOR NO KEY UPDATE OF holders SKIP LOCKED
)
UPDATE holders SET until_us = greatest(until_us, (SELECT us FROM clock) + found.span)
FROM found WHERE holders.key = found.key AND holders.claim = found.claim
RETURNING found.nth, holders.fence
