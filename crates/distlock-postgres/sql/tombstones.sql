-- $1 key, $2 claims
SELECT claim, until_us FROM tombstones WHERE key = $1 AND claim = ANY ($2)
