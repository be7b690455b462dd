-- ?1 key, ?2 client, ?3 how many are of interest: how many places the client has, up to that
SELECT count(*) FROM (SELECT 1 FROM waiters WHERE key = ?1 AND client = ?2 LIMIT ?3)
