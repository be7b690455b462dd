-- The machine was started again: all holders and waiters are gone. Fences go on from the ceiling, since
-- the last ones given out may not have reached the disk.
DELETE FROM holders;
DELETE FROM crowds;
DELETE FROM waiters;
DELETE FROM queues;
DELETE FROM clients;
DELETE FROM graves;
UPDATE store SET counter = ceiling;
