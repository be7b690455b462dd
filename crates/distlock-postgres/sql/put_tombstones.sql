-- $1 key, $2 claims, $3 until when each is dead
INSERT INTO tombstones (key, claim, until_us)
SELECT $1, * FROM unnest($2::bytea[], $3::bigint[])
ON CONFLICT (key, claim) DO UPDATE SET until_us = excluded.until_us
