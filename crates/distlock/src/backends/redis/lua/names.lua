-- Names for what every script gets.
--
-- KEYS  1 main, 2 fence, 3 sharers, 4 exclusive queue, 5 shared queue, 6 clients, 7 places,
--       8 details, 9 graves. All but the fence carry one hash tag; on a cluster the fence does,
--       too. From 3 on they may be left out: then they are called after main.
-- ARGV  1 claim id, 2 client id, 3 push verb and channel without the client id ('' for none),
--       4 how long the fence counter lives on, in ms. The rest is each script's own.
local main, fence_key = KEYS[1], KEYS[2]
local fence_life, one_counter = ARGV[4], not KEYS[3]
local id = ARGV[1]
local call = redis.call
local MORE = 43 -- the byte of '+', see texts.lua
