-- $1 key: exclusive holds are renewed without the latch, so they are locked against it. Weaker than
-- what a deletion needs: a user's own transaction that is fenced by a hold stops no other verb.
SELECT FROM holders
WHERE key = $1 AND weight = capacity AND (SELECT sharers = 0 FROM keys WHERE key = $1)
ORDER BY claim FOR NO KEY UPDATE
