-- ?1 the entry to read on after, ?2 how many
SELECT id, at_ms, what, key, owner, reason, mode, CAST(fence AS TEXT), CAST(visit AS TEXT),
       CAST(us AS TEXT), CAST(ahead AS TEXT), by_whom, why
FROM journal WHERE id > ?1 ORDER BY id LIMIT ?2
