-- $1 key, $2 tickets
DELETE FROM waiters WHERE key = $1 AND exclusive IN (true, false) AND ticket = ANY ($2)
