-- The past of the locks, for those who look back: select * from journal. It decides nothing, and it
-- outlives a restart of the machine.
CREATE TABLE journal (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    written_ms INTEGER NOT NULL,    -- milliseconds since 1970, as all times here
    at_ms INTEGER NOT NULL,         -- when it happened
    what TEXT NOT NULL,             -- queued, gave-up, granted, at-risk, released, lost or broken
    key TEXT NOT NULL,
    owner TEXT NOT NULL,
    reason TEXT,
    mode TEXT NOT NULL,             -- exclusive, shared, or permits as 2/5
    fence INTEGER,
    visit INTEGER,                  -- the same for all of one acquisition
    us INTEGER,                     -- how long it waited or held, or what was left of the lease
    ahead INTEGER,
    by_whom TEXT,
    why TEXT
);

CREATE INDEX journal_by_key ON journal (key, id);
