-- ?1 key, ?2 how many
SELECT id, at_ms, what, key, owner, reason, mode, CAST(fence AS TEXT), CAST(visit AS TEXT),
       CAST(us AS TEXT), CAST(ahead AS TEXT), by_whom, why
FROM journal WHERE key = ?1 ORDER BY id DESC LIMIT ?2
