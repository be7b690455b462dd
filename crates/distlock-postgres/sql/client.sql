-- $1 key, $2 client
SELECT until_us, places FROM clients WHERE key = $1 AND client = $2
