-- $1 key, $2 claims, $3 how many of each line: the first of both lines, the places of the claims,
-- and those of clients that have not been heard of in time. A place may appear twice.
SELECT w.exclusive, w.ticket, w.claim, w.queueing, w.client, w.owner, w.reason, w.weight, w.capacity, w.readers, w.reentry, w.fence_floor, w.since_us, w.ttl_us, w.attempts,
       c.until_us, c.places
FROM (
    (SELECT * FROM waiters WHERE key = $1 AND exclusive ORDER BY ticket LIMIT $3)
    UNION ALL
    (SELECT * FROM waiters WHERE key = $1 AND NOT exclusive ORDER BY ticket LIMIT $3)
    UNION ALL
    SELECT * FROM waiters WHERE key = $1 AND claim = ANY ($2)
    UNION ALL
    SELECT late.* FROM clients JOIN waiters late USING (key, client)
    WHERE clients.key = $1
      AND until_us <= (SELECT now_us())
) w JOIN clients c USING (key, client)
