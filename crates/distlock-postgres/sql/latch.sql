-- $1 key: locks its row, made if it is not there. Unlike a SELECT it cannot miss a row that is
-- deleted and made again at the same moment.
INSERT INTO keys AS k (key, counter) VALUES ($1, 0)
ON CONFLICT (key) DO UPDATE SET counter = k.counter WHERE false
