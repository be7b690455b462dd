-- $1 key, $2 fence: finds the hold that has this fence, if its lease still runs. Until the transaction ends,
-- the hold can be renewed, but it cannot end: a release or the next grant waits for this transaction.
SELECT FROM holders
WHERE key = $1 AND fence = $2 AND NOT kept
  AND until_us > now_us()
FOR KEY SHARE
