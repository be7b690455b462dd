-- An update takes the write lock of the file, also in a deferred transaction.
UPDATE distlock_fences SET fence = fence WHERE name = ?1 AND fence = ?2
