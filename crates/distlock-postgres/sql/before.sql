-- $1 key, $2 claims: the tickets of those that wait, and how many places of the shared and of the
-- exclusive line are before each
SELECT w.ticket,
       (SELECT count(*) FROM waiters b WHERE b.key = $1 AND NOT b.exclusive AND b.ticket < w.ticket),
       (SELECT count(*) FROM waiters b WHERE b.key = $1 AND b.exclusive AND b.ticket < w.ticket)
FROM waiters w WHERE w.key = $1 AND w.claim = ANY ($2)
