-- An update, not a SELECT FOR UPDATE: it makes a newer holder's snapshot that is older than this
-- transaction fail at REPEATABLE READ.
UPDATE distlock_fences SET fence = fence WHERE name = $1 AND fence = $2
