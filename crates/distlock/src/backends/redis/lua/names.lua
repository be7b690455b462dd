-- Names for what every script gets.
--
-- KEYS  1 main, 2 fence, 3 sharers, 4 exclusive queue, 5 shared queue, 6 clients, 7 places,
--       8 details, 9 graves. All but the fence carry one hash tag; on a cluster the fence does,
--       too. From 3 on they may be left out: then they are called after main.
-- ARGV  1 claim id, 2 the caller: 'P', 'S' or '-' for PUBLISH, SPUBLISH or nothing by which clients
--       are told, right behind it the client id, then how long the fence counter lives on, in ms,
--       and the channels without the client id. The rest is each script's own.
--
-- They are few because each of them costs the server about as much as a line of a script does.
local main, fence_key, one_counter = KEYS[1], KEYS[2], not KEYS[3]
local id, caller = ARGV[1], ARGV[2]
local call = redis.call
local MORE = 43 -- the byte of '+', see texts.lua

-- What the files of a script leave for those behind them; each says what it needs and what it
-- leaves. They are written one behind the other instead of as functions because to define a
-- function costs more than what most of them do.
local mine, stem, nobody_buried
local next_claim, next_ticket, next_ask, next_client, next_floor, next_ends
local wanted, and_next, taken, upto
local joins, place, floor, joined
local leaving_sum, leaving_worth, settled, news
