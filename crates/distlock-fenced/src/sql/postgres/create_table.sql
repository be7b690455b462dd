-- fillfactor leaves room beside a row for its next version, so that raising it changes no index.
CREATE TABLE IF NOT EXISTS distlock_fences (
    name text PRIMARY KEY,
    fence bigint NOT NULL
) WITH (fillfactor = 70)
