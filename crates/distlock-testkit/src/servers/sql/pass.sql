-- Lets time pass for all locks of a schema that no client uses at this moment, by making everything
-- older: leases, places and tombstones end sooner; holders and waiters look as if they had begun
-- earlier. `us` is the time in microseconds.
BEGIN;
SELECT count(*) FROM (SELECT FROM keys ORDER BY key FOR UPDATE) AS latched;
UPDATE holders SET since_us = since_us - :us, until_us = until_us - :us;
UPDATE keys SET tombstones_until_us = greatest(tombstones_until_us - :us, 0);
UPDATE waiters SET since_us = since_us - :us;
UPDATE clients SET until_us = until_us - :us;
UPDATE tombstones SET until_us = until_us - :us;
COMMIT;
