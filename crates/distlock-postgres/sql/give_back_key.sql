-- $1 key, $2 claim: frees a key whose only holder is this exclusive claim, and for which no claim waits
UPDATE keys SET holders = 0, sole = NULL
WHERE key = $1 AND sole = $2 AND exclusive_waiters = 0 AND shared_waiters = 0
