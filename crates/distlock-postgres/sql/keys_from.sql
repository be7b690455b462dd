-- $1 the first key, $2 how many: keys that a claim holds or waits for
SELECT key FROM keys
WHERE key >= $1 AND holders + exclusive_waiters + shared_waiters > 0
ORDER BY key LIMIT $2
