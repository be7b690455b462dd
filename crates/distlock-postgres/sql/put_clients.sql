-- $1 key, $2 clients, $3 until when each lives, $4 how many places each has
INSERT INTO clients (key, client, until_us, places)
SELECT $1, * FROM unnest($2::bytea[], $3::bigint[], $4::integer[])
ON CONFLICT (key, client) DO UPDATE SET until_us = excluded.until_us, places = excluded.places
