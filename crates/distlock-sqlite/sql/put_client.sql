INSERT INTO clients (key, client, until_us) VALUES (?1, ?2, ?3)
ON CONFLICT (key, client) DO UPDATE SET until_us = excluded.until_us
