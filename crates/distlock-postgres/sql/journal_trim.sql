-- $1 how many entries are kept, $2 the time in ms from which on they are kept: all before the first such go
DELETE FROM journal
WHERE id <= (SELECT last FROM journal_end) - $1
   OR id < (SELECT id FROM journal WHERE written_ms >= $2 ORDER BY id LIMIT 1)
