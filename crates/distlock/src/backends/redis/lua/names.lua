-- Names for what every script gets.
--
-- What is the same for all calls of a namespace, or usual, stands above instead of in the call (see
-- script.rs), because every argument costs the server more than most lines of a script do:
--   FENCE, LIFE, CHANNEL  the counter of fences, for how many ms it lives on, and the channels by
--         which clients are told, without the client id. Missing on a cluster and for bare keys.
--   TTL, WAIT             what most ask for, see acquire_free.lua.
-- KEYS  1 main. Where those are missing: 2 fence, 3 sharers, 4 exclusive queue, 5 shared queue,
--       6 clients, 7 places, 8 details, 9 graves, all with one hash tag. Otherwise side keys are
--       called after main.
-- ARGV  1 claim id, 2 the caller as in texts.lua; those who ask name theirs later, or not at all.
--       The rest is each script's own.
local KEYS, ARGV, call = KEYS, ARGV, redis.call
local main, fence_key, id, caller = KEYS[1], FENCE or KEYS[2], ARGV[1], ARGV[2]
local MORE = 43 -- the byte of '+', see texts.lua

-- What the files of a script leave for those behind them; each says what it needs and what it
-- leaves. They are written one behind the other instead of as functions because to define a
-- function costs more than what most of them do.
local ask, ttl, wait, floor
local mine, stem, nobody_buried
local next_claim, next_ticket, next_ask, next_client, next_floor, next_ends
local wanted, and_next, taken, upto
local joins, place, joined
local leaving_sum, leaving_worth, settled, news
