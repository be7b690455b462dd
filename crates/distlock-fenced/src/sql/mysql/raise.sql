UPDATE distlock_fences SET fence = ?, uses = uses + 1 WHERE name = ? AND fence <= ?
