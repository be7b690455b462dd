-- Not INSERT IGNORE: that takes a shared lock on a row that exists, and two holders that both go on
-- to update the row would deadlock.
INSERT INTO distlock_fences (name, fence, uses) VALUES (?, 0, 0)
ON DUPLICATE KEY UPDATE uses = uses + 1
