-- Many mutexes at once, each in the usual case: an exclusive holder lets go and nobody waits, or
-- somebody asks and nobody holds, waits or is buried there. Whatever is not so is left alone.
--
-- KEYS  1 fence, then the main keys: of those that are released, then of those that are asked for.
--       Side keys are called after them.
-- ARGV  1 how many are released; then the claim ids of all, a space behind each; then, if anybody
--       asks, the ask of all who do as in acquire_free.lua, and their ttl.
-- Returns, as words, the first claim id, how many were to be released, the fence of all who are
-- granted (fences only have to grow from one holder of a key to the next) or 0 if nobody asks, and
-- the places in the call, from 1 on, of those who are left alone.
local call, keys, args, find = redis.call, KEYS, ARGV, string.find
local LIFE, fence_key, one_counter = '31622400000', keys[1], true -- as in names.lua
local wanted, taken = true, nil
local releases = tonumber(args[1])
local asks = #keys - 1 - releases
local left_alone = {}
