-- $1 key, $2 how many
SELECT id, at_ms, what, key, owner, reason, mode, fence, visit, us, ahead, by_whom, why
FROM journal WHERE key = $1 ORDER BY id DESC LIMIT $2
