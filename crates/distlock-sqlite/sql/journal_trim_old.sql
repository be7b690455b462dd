-- ?1 the time from which on entries are kept: all before the first such go, found from the oldest on
DELETE FROM journal
WHERE id < (SELECT id FROM journal WHERE written_ms >= ?1 ORDER BY id LIMIT 1)
