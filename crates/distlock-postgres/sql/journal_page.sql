-- $1 the entry to read on after, $2 how many
SELECT id, at_ms, what, key, owner, reason, mode, fence, visit, us, ahead, by_whom, why
FROM journal WHERE id > $1 ORDER BY id LIMIT $2
