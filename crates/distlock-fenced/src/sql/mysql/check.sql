UPDATE distlock_fences SET uses = uses + 1 WHERE name = ? AND fence = ?
