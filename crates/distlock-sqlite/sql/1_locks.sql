-- Everything about locks. Read it with the sqlite3 shell: select * from locks;
--
-- Times (`..._us`) are microseconds since the machine was started: the clock of /proc/uptime. It
-- never jumps. Another start of the machine clears all but the table `store`.

-- What is known of the store as a whole: one row.
CREATE TABLE store (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    name TEXT NOT NULL,         -- random: tells this store from all others
    boot TEXT NOT NULL,         -- the start of the machine that the times belong to
    counter INTEGER NOT NULL,   -- the last fence or ticket given out
    ceiling INTEGER NOT NULL    -- no fence above this is given out before it is raised on the disk
);

-- Those who hold a key.
CREATE TABLE holders (
    key TEXT NOT NULL,
    claim BLOB NOT NULL,        -- the secret of this acquisition
    client BLOB NOT NULL,
    owner TEXT NOT NULL,
    reason TEXT,
    weight INTEGER NOT NULL,    -- how much it holds ...
    capacity INTEGER NOT NULL,  -- ... out of how much: equal means that it shares with no other claim
    queueing TEXT NOT NULL,     -- fifo, prefer-writers or prefer-readers
    readers TEXT,               -- the group of readers that it belongs to
    reentry BLOB,
    fence INTEGER NOT NULL,
    since_us INTEGER NOT NULL,
    until_us INTEGER NOT NULL,
    kept INTEGER NOT NULL,      -- 1: released, but kept until then
    PRIMARY KEY (key, claim)
) WITHOUT ROWID;

-- Finds keys that no client asks for any more.
CREATE INDEX holders_by_end ON holders (until_us);

-- Sharers by the end of their lease, and how many there are: a crowd is not read to serve one.
CREATE INDEX sharers_by_end ON holders (key, until_us) WHERE weight < capacity;

CREATE TABLE crowds (
    key TEXT NOT NULL PRIMARY KEY,
    sharers INTEGER NOT NULL,
    weight INTEGER NOT NULL     -- how much they hold together
) WITHOUT ROWID;

CREATE TRIGGER sharer_came AFTER INSERT ON holders WHEN new.weight < new.capacity BEGIN
    INSERT INTO crowds VALUES (new.key, 1, new.weight)
    ON CONFLICT (key) DO UPDATE
    SET sharers = sharers + 1, weight = weight + excluded.weight;
END;

CREATE TRIGGER sharer_left AFTER DELETE ON holders WHEN old.weight < old.capacity BEGIN
    UPDATE crowds SET sharers = sharers - 1, weight = weight - old.weight WHERE key = old.key;
    DELETE FROM crowds WHERE key = old.key AND sharers = 0;
END;

-- A writer that turns into a reader, a sharer that gives back a part, a claim that came back.
CREATE TRIGGER holder_changed AFTER UPDATE OF weight, capacity ON holders
WHEN new.weight <> old.weight OR new.capacity <> old.capacity BEGIN
    INSERT INTO crowds VALUES (new.key, 0, 0) ON CONFLICT (key) DO NOTHING;
    UPDATE crowds
    SET sharers = sharers + (new.weight < new.capacity) - (old.weight < old.capacity),
        weight = weight + iif(new.weight < new.capacity, new.weight, 0)
                        - iif(old.weight < old.capacity, old.weight, 0)
    WHERE key = new.key;
    DELETE FROM crowds WHERE key = new.key AND sharers = 0;
END;

-- Those who wait for a key. Every key has two lines: those who want it for themselves, and sharers.
CREATE TABLE waiters (
    key TEXT NOT NULL,
    exclusive INTEGER NOT NULL, -- which line
    ticket INTEGER NOT NULL,    -- the place in it
    claim BLOB NOT NULL,
    client BLOB NOT NULL,
    owner TEXT NOT NULL,
    reason TEXT,
    weight INTEGER NOT NULL,
    capacity INTEGER NOT NULL,
    queueing TEXT NOT NULL,
    readers TEXT,
    reentry BLOB,
    fence_floor INTEGER,
    since_us INTEGER NOT NULL,
    PRIMARY KEY (key, exclusive, ticket)
) WITHOUT ROWID;

CREATE UNIQUE INDEX waiters_by_claim ON waiters (key, claim);
CREATE INDEX waiters_by_client ON waiters (key, client);
CREATE INDEX waiters_by_reentry ON waiters (key, reentry) WHERE reentry IS NOT NULL;

-- How long the two lines of a key are. There is no row where no client waits.
CREATE TABLE queues (
    key TEXT NOT NULL PRIMARY KEY,
    exclusive INTEGER NOT NULL,
    shared INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TRIGGER waiter_came AFTER INSERT ON waiters BEGIN
    INSERT INTO queues VALUES (new.key, new.exclusive, 1 - new.exclusive)
    ON CONFLICT (key) DO UPDATE
    SET exclusive = exclusive + excluded.exclusive, shared = shared + excluded.shared;
END;

CREATE TRIGGER waiter_left AFTER DELETE ON waiters BEGIN
    UPDATE queues SET exclusive = exclusive - old.exclusive, shared = shared - 1 + old.exclusive
    WHERE key = old.key;
    DELETE FROM queues WHERE key = old.key AND exclusive = 0 AND shared = 0;
END;

-- The places of a client live until its heartbeats end.
CREATE TABLE clients (
    key TEXT NOT NULL,
    client BLOB NOT NULL,
    until_us INTEGER NOT NULL,
    PRIMARY KEY (key, client)
) WITHOUT ROWID;

CREATE INDEX clients_by_end ON clients (key, until_us);

-- Claims that were given up while they were still on their way: they can hold nothing any more.
CREATE TABLE graves (
    key TEXT NOT NULL,
    claim BLOB NOT NULL,
    until_us INTEGER NOT NULL,
    PRIMARY KEY (key, claim)
) WITHOUT ROWID;

CREATE INDEX graves_by_end ON graves (until_us);

-- For people.
CREATE VIEW locks AS
SELECT key, 'holds' AS standing, owner, reason, weight, capacity, fence AS number,
       since_us / 1000000 AS since_uptime_s, until_us / 1000000 AS until_uptime_s
FROM holders
UNION ALL
SELECT key, 'waits', owner, reason, weight, capacity, ticket,
       since_us / 1000000, clients.until_us / 1000000
FROM waiters JOIN clients USING (key, client)
ORDER BY key, standing, number;
