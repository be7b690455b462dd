-- $1 key, $2 clients
DELETE FROM clients WHERE key = $1 AND client = ANY ($2)
