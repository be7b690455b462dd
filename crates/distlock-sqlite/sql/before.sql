-- ?1 key, ?2 line, ?3 ticket: how many of the line are before it
SELECT count(*) FROM waiters WHERE key = ?1 AND exclusive = ?2 AND ticket < ?3
