-- Names for what every script gets.
--
-- KEYS  1 main, 2 fence, 3 sharers, 4 exclusive queue, 5 shared queue, 6 clients, 7 places,
--       8 details, 9 graves. All but the fence carry one hash tag; on a cluster the fence does,
--       too. From 3 on they may be left out: then they are called after main, and all keys of the
--       namespace share the one counter. So may the fence, where only a claim id is told.
-- ARGV  1 claim id, 2 the caller as in texts.lua; those who ask name theirs later, or not at all.
--       The rest is each script's own.
--
-- They are few because each of them costs the server more than most lines of a script do. So what
-- is usual is not said but stands here: how long, in ms, a counter that keys share lives on, and
-- the ttl, the place in ms and, as a number, the most waiters that most ask for.
local LIFE, TTL, PLACE, MOST = '31622400000', '30000', '4000', 1000000
local KEYS, ARGV, call = KEYS, ARGV, redis.call
local main, fence_key, one_counter = KEYS[1], KEYS[2], not KEYS[3]
local id, caller = ARGV[1], ARGV[2]

-- What the files of a script leave for those behind them; each says what it needs and what it
-- leaves. They are written one behind the other instead of as functions because to define a
-- function costs more than what most of them do.
local ask, ttl, place, most, floor
local mine, stem
local next_claim, next_place, next_ticket, next_ask, next_client, next_floor, next_ends
local wanted, taken
local joins, joined
local leaving_sum, leaving_worth
