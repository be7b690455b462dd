-- Terraform states by name. A state that was written under a fence is only replaced under a fence
-- that is as large: whoever lost the lock cannot overwrite what its successor wrote.
CREATE TABLE IF NOT EXISTS state (
    name  TEXT PRIMARY KEY,
    fence INTEGER NOT NULL,
    body  BLOB NOT NULL
) STRICT, WITHOUT ROWID;
