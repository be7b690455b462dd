-- $1 key, $2 claims
DELETE FROM holders WHERE key = $1 AND claim = ANY ($2)
