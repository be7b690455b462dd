-- $1 key, $2 claim: ends the hold if its key was freed. A statement of its own, since it has to see what
-- the one before it waited for. Says whether the lease still ran.
DELETE FROM holders WHERE key = $1 AND claim = $2 AND (SELECT holders = 0 FROM keys WHERE key = $1)
RETURNING until_us > now_us()
