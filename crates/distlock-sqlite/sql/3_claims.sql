-- The calls for a claim whose id the caller chose: 16 bytes each, one behind the other. The clean-up
-- of a call takes its own away, and the claim goes with the last. NULL: no call gives it up.
ALTER TABLE holders ADD COLUMN attempts BLOB;
ALTER TABLE waiters ADD COLUMN attempts BLOB;

-- How long a waiter asked to hold: its grant lasts for the rest of its place and no longer than this.
-- Rows of before ask for the longest lease.
ALTER TABLE waiters ADD COLUMN ttl_us INTEGER NOT NULL DEFAULT 31536000000000;
