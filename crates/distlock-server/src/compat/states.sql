-- Terraform states by name. A state that was written under a fence is only replaced under a fence
-- that is as large: a holder that lost the lock cannot overwrite what its successor wrote. A
-- deleted state keeps its row, without a size, so that this stays true.
CREATE TABLE IF NOT EXISTS document (
    name  TEXT PRIMARY KEY,
    fence INTEGER NOT NULL,
    size  INTEGER
) STRICT;

-- The contents, in parts: no state is ever in memory as a whole.
CREATE TABLE IF NOT EXISTS part (
    name   TEXT NOT NULL,
    number INTEGER NOT NULL,
    body   BLOB NOT NULL,
    PRIMARY KEY (name, number)
) STRICT;
