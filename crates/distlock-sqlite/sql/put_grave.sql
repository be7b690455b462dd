INSERT INTO graves (key, claim, until_us) VALUES (?1, ?2, ?3)
ON CONFLICT (key, claim) DO UPDATE SET until_us = excluded.until_us
