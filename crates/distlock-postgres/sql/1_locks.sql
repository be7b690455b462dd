-- Everything about locks, in a schema of their own. Read it with psql: SELECT * FROM distlock.locks;
--
-- Times (`..._us`) are microseconds since 1970 by the clock of the server. Rows are updated in place
-- (HOT): pages have room for it, and no index is on a column that changes.

-- The clock of all leases. Every statement that decides reads it after the latch of its key was taken:
-- the time at which a transaction began may be long ago by then.
CREATE FUNCTION now_us() RETURNS bigint LANGUAGE sql VOLATILE PARALLEL SAFE
AS 'SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint';

CREATE TABLE meta (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    version integer NOT NULL,   -- of these tables
    name text NOT NULL          -- random: tells this store from all others
);

-- A row for each key. Every verb locks it first: it is the latch of its key.
CREATE TABLE keys (
    key bytea PRIMARY KEY,
    counter bigint NOT NULL,                        -- the last fence or ticket given out
    holders integer NOT NULL DEFAULT 0,             -- how many rows the key has in `holders`
    sharers integer NOT NULL DEFAULT 0,             -- how many of them share ...
    shared_weight bigint NOT NULL DEFAULT 0,        -- ... and how much they hold together
    sole bytea,                                     -- the claim of the holder, if it is alone and exclusive
    exclusive_waiters integer NOT NULL DEFAULT 0,
    shared_waiters integer NOT NULL DEFAULT 0,
    tombstones_until_us bigint NOT NULL DEFAULT 0   -- when the last tombstone of the key ends
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500);

CREATE TABLE holders (
    key bytea NOT NULL,
    claim bytea NOT NULL,       -- the secret of this acquisition
    client bytea NOT NULL,
    owner text NOT NULL,
    reason text,
    weight bigint NOT NULL,     -- how much it holds ...
    capacity bigint NOT NULL,   -- ... out of how much: equal means that it is exclusive
    queueing text NOT NULL,     -- fifo, prefer-writers or prefer-readers
    readers text,               -- the group of readers that it belongs to
    reentry bytea,
    fence bigint NOT NULL,
    since_us bigint NOT NULL,
    until_us bigint NOT NULL,
    kept boolean NOT NULL,      -- released, but kept until then
    attempts bytea,             -- the calls for a claim whose id the caller chose, 16 bytes each
    PRIMARY KEY (key, claim)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500);

-- Every key has two lines of waiters: exclusive ones, and sharers.
CREATE TABLE waiters (
    key bytea NOT NULL,
    exclusive boolean NOT NULL, -- which line
    ticket bigint NOT NULL,     -- the place in it
    claim bytea NOT NULL,
    client bytea NOT NULL,
    owner text NOT NULL,
    reason text,
    weight bigint NOT NULL,
    capacity bigint NOT NULL,
    queueing text NOT NULL,
    readers text,
    reentry bytea,
    fence_floor bigint,
    since_us bigint NOT NULL,
    ttl_us bigint NOT NULL,     -- how long it asks to hold
    attempts bytea,
    PRIMARY KEY (key, exclusive, ticket)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500);

CREATE UNIQUE INDEX waiters_by_claim ON waiters (key, claim);
CREATE INDEX waiters_by_client ON waiters (key, client);
CREATE INDEX waiters_by_reentry ON waiters (key, reentry) WHERE reentry IS NOT NULL;

-- The places of a client live until its heartbeats end.
CREATE TABLE clients (
    key bytea NOT NULL,
    client bytea NOT NULL,
    until_us bigint NOT NULL,
    places integer NOT NULL,    -- how many rows it has in `waiters`
    PRIMARY KEY (key, client)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500);

-- Claims that were given up while a request for them may still be on its way: they hold nothing.
CREATE TABLE tombstones (
    key bytea NOT NULL,
    claim bytea NOT NULL,
    until_us bigint NOT NULL,
    PRIMARY KEY (key, claim)
);

-- For people. A key with bytes that are no text is shown with escapes.
CREATE VIEW locks AS
SELECT encode(key, 'escape') AS key, 'holds' AS standing, owner, reason, weight, capacity,
       fence AS number, to_timestamp(since_us / 1e6) AS since, to_timestamp(until_us / 1e6) AS until
FROM holders
UNION ALL
SELECT encode(key, 'escape'), 'waits', owner, reason, weight, capacity,
       ticket, to_timestamp(since_us / 1e6), to_timestamp(clients.until_us / 1e6)
FROM waiters JOIN clients USING (key, client)
ORDER BY key, standing, number;

-- The past of the locks, for those who look back. It decides nothing.
CREATE TABLE journal (
    id bigint PRIMARY KEY,
    written_ms bigint NOT NULL, -- milliseconds since 1970, as all times here
    at_ms bigint NOT NULL,      -- when it happened
    what text NOT NULL,         -- queued, gave-up, granted, at-risk, released, lost, broken or action
    key bytea NOT NULL,
    owner text NOT NULL,
    reason text,
    mode text NOT NULL,         -- exclusive, shared, or permits as 2/5
    fence text,
    visit text,                 -- the same for all of one acquisition
    us text,                    -- how long it waited or held, or what was left of the lease
    ahead text,
    by_whom text,
    why text
);

CREATE INDEX journal_by_key ON journal (key, id);

-- The number of the last entry. Writers of the journal lock this row, so that entries appear in the
-- sequence of their numbers: a sequence of the server would show a larger number first.
CREATE TABLE journal_end (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    last bigint NOT NULL
) WITH (fillfactor = 70);

INSERT INTO journal_end (last) VALUES (0);
