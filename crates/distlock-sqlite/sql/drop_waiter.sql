DELETE FROM waiters WHERE key = ?1 AND exclusive IN (0, 1) AND ticket = ?2
