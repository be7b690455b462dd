INSERT INTO distlock_fences (name, fence) VALUES ($1, $2)
ON CONFLICT (name) DO UPDATE SET fence = excluded.fence
WHERE distlock_fences.fence <= excluded.fence
