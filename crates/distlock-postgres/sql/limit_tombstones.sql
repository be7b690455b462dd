-- $1 key, $2 how many it may have: beyond that, those that would be forgotten first go
DELETE FROM tombstones WHERE key = $1 AND claim IN
    (SELECT claim FROM tombstones WHERE key = $1 ORDER BY until_us DESC OFFSET $2)
