-- ?1 the first key, ?2 how many: keys that a client holds or waits for
SELECT DISTINCT key FROM holders WHERE key >= ?1 AND typeof(key) = 'text' ORDER BY key LIMIT ?2
