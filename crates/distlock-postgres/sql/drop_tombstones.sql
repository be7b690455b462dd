-- $1 key, $2 claims
DELETE FROM tombstones WHERE key = $1 AND claim = ANY ($2)
