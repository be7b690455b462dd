-- The keys of one lock. All of them carry one hash tag and expire.
--
-- main       a string that says who holds, see codec.lua.
-- fence      the last number given out: fences and tickets come from one counter.
-- sharers    zset claim -> end of lease. Beside an exclusive main: the other claims of its thread
--            of work; main carries the one that ends last. They count only if main says so.
-- exclusive, shared
--            zset place -> ticket, the two queues. A place is called 'c:<client>:<claim>'. That is
--            more than 64 bytes, so that the server keeps short queues as skip lists, too.
-- clients    zset client -> moment until which its places live.
-- places     zset of places and of 'r:<reentry>:<claim>', all of score 0, for searches by prefix.
-- details    hash claim -> record. '~w' is the sum of the sharers' weights. '~<client>:<second>' is
--            a digest of places of the client. '~s' and '~x' are marks: without '~s' there are
--            no sharers and shared places, without '~x' no tombstones.
-- tombstones zset claim -> moment until which it stays dead.
--
-- A client of one server with a namespace names main alone: the rest is called after it, and all
-- keys of the namespace share a counter. Other clients name all keys, and behind them the channel
-- of pushes without the client id.

local BARE_COUNTER = 'distlock-side:fence'

local function fence_of(keys)
  -- No '{' is in a key, so the last one ends the namespace.
  return keys[2] or string.match(keys[1], '^(.*):{') .. ':fence'
end

local function has_one_counter(keys)
  return not keys[2] or keys[2] == BARE_COUNTER
end

-- The keys of a lock, and room for what `open` finds out about it.
local function names(keys)
  local main, fence = keys[1], fence_of(keys)
  return {
    main = main, fence = fence, one_counter = has_one_counter(keys),
    sharers = keys[3] or main .. ':s',
    exclusive = keys[4] or main .. ':qx', shared = keys[5] or main .. ':qs',
    clients = keys[6] or main .. ':c', places = keys[7] or main .. ':p',
    details = keys[8] or main .. ':d', tombstones = keys[9] or main .. ':x',
    channel = keys[10] or string.sub(fence, 1, -6) .. 'push:',
    call = false, now = false, held = false, alone = false, shares = false, buries = false,
  }
end
