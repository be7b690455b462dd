-- The law, restated: who may hold what. The original is crates/distlock-core/src/law; every rule
-- here has its twin there, and random operations compare the two.
--
-- A verb opens a lock, settles it, changes it and closes it. `lock` has the names of the keys
-- (see keys.lua), the present and `held`: what main says, of the kind 'exclusive', 'shared' or
-- 'foreign'; nil if the key is free.

local TOMBSTONES_MAX = 10000
local SLICE = 500 -- unpack breaks at about 8000
local SLACK = 60000
local NAMESPACE_COUNTER_LIFE, KEY_COUNTER_LIFE = '31622400000', 3600000

-- Time is read once, so that all decisions of one call are made at one moment. Fences and tickets
-- start from its microseconds, which are exact below 2^53.
local function present(call)
  if not call.now_us then
    local time = redis.call('TIME')
    call.now_us = time[1] .. (#time[2] == 6 and time[2] or string.format('%06d', time[2]))
  end
  return call.now_us
end

-- The last number given out. A text that is no number was not written by us and counts as none.
local function last_number(call, fence)
  call.counter = call.counter or tonumber(redis.call('GET', fence) or 0) or 0
  return call.counter
end

-- It is written when the call ends: requests of one call share the counter. On a cluster it
-- outlives the span for which it was taken.
local function note_number(call, keys, number, span)
  local life = keys.one_counter and NAMESPACE_COUNTER_LIFE or whole(KEY_COUNTER_LIFE + span)
  call.counter, call.fence, call.life = number, keys.fence, life
  return whole(number)
end

-- The next number as a text, or nil at the end of the counter.
local function mint(call, keys, at_least, span)
  local number = math.max(last_number(call, keys.fence) + 1, tonumber(at_least or call.now_us))
  return number <= NUMBER_MAX and note_number(call, keys, number, span) or nil
end

local function finish(call)
  if call.fence then
    redis.call('SET', call.fence, whole(call.counter), 'PX', call.life)
  end
end

-- Denied or not, the grant stands: the next heartbeat of the waiter tells.
local function push(lock, client, text)
  redis.pcall(lock.one_counter and 'PUBLISH' or 'SPUBLISH', lock.channel .. client, text)
end

-- Side keys end a little later than what is in them, so that the next verb that comes in time
-- removes it piece by piece, with all that belongs to it. Keys are extended together, whenever the
-- first of them would not outlive what is in it by much.
local function outlive(lock, keys, until_)
  if redis.call('PTTL', keys[1]) >= until_ - lock.now + SLACK / 2 then
    return
  end
  local ends = whole(until_ + SLACK)
  for _, key in ipairs(keys) do
    redis.call('PEXPIREAT', key, ends, 'NX')
    redis.call('PEXPIREAT', key, ends, 'GT')
  end
end

local function read_main(lock)
  local text = redis.pcall('GET', lock.main)
  if not text then
    return nil
  end
  local left = redis.call('PTTL', lock.main)
  local ends = left >= 0 and lock.now + left or math.huge
  if type(text) == 'table' then
    if not string.find(text.err, 'WRONGTYPE', 1, true) then
      error(text)
    end
    return { kind = 'foreign', ends = ends, marked = true, wrong_type = text }
  end
  local group, order = decode_shared(text)
  if group and redis.call('EXISTS', lock.sharers) == 1 then
    return { kind = 'shared', group = group, order = order, ends = ends, marked = true }
  end
  local held = decode_main(text) or {}
  held.kind, held.ends = held.id and 'exclusive' or 'foreign', ends
  held.marked = held.kind == 'foreign' or string.byte(text, -1) == 43 -- '+'
  return held
end

local function open(call, keys)
  local lock = names(keys)
  lock.call, lock.now = call, tonumber(string.sub(present(call), 1, -4))
  lock.held = read_main(lock)
  lock.alone = lock.held and not lock.held.marked
  if not lock.alone then
    local marks = redis.call('HMGET', lock.details, '~s', '~x')
    lock.shares, lock.buries = marks[1], marks[2]
  end
  return lock
end

-- Removes the marks that are no longer true.
local function close(lock)
  if lock.shares and redis.call('EXISTS', lock.sharers, lock.shared) == 0 then
    redis.call('HDEL', lock.details, '~s')
  end
  if lock.buries and redis.call('EXISTS', lock.tombstones) == 0 then
    redis.call('HDEL', lock.details, '~x')
  end
end

-- Holders.

local function write_exclusive(lock, h, ends)
  h.kind, h.exclusive, h.ends, h.marked = 'exclusive', true, ends, true
  lock.held = h
  redis.call('SET', lock.main, encode_main(h), 'PXAT', whole(ends))
end

-- From now on there are side keys. What a foreign client has written stays as it is.
local function mark_sides(lock)
  local held = lock.held
  if held and not held.marked then
    redis.call('APPEND', lock.main, '+')
    held.marked = true
  end
end

local function write_sharer(lock, h, ends)
  lock.shares = true
  redis.call('ZADD', lock.sharers, whole(ends), h.id)
  redis.call('HSET', lock.details, h.id, encode(h), '~s', '')
  outlive(lock, { lock.sharers, lock.details }, ends)
end

-- A thread of work may be inside with several claims: main carries the last to end.
local function put_exclusive(lock, h, ends)
  local held = lock.held
  if not held then
    write_exclusive(lock, h, ends)
  elseif ends > held.ends then
    write_sharer(lock, held, held.ends)
    write_exclusive(lock, h, ends)
  else
    mark_sides(lock)
    write_sharer(lock, h, ends)
  end
end

local function last_sharer(lock)
  local last = redis.call('ZRANGE', lock.sharers, -1, -1, 'WITHSCORES')
  return last[1], moment(lock.sharers, last[2])
end

local function write_shared(lock)
  local _, ends = last_sharer(lock)
  lock.held.ends = ends
  redis.call('SET', lock.main, encode_shared(lock.held), 'PXAT', whole(ends))
end

-- The sum of the sharers' weights. Counted anew if it is missing or no number.
local function weight_now(lock)
  local sum = redis.call('HGET', lock.details, '~w')
  if sum and #sum <= 16 and string.find(sum, '^%d+$') then
    return tonumber(sum)
  end
  sum = 0
  for _, claim in ipairs(redis.call('ZRANGE', lock.sharers, 0, -1)) do
    local h = details_of(lock, claim)
    sum = sum + (h and tonumber(h.weight) or 0)
  end
  return sum
end

local function change_weight(lock, by)
  redis.call('HSET', lock.details, '~w', whole(math.max(weight_now(lock) + by, 0)))
end

local function put_shared(lock, h, ends)
  lock.held = lock.held or { kind = 'shared', group = h.group, order = h.order, marked = true }
  change_weight(lock, tonumber(h.weight))
  write_sharer(lock, h, ends)
  write_shared(lock)
end

local function put(lock, h, ends)
  if h.exclusive then
    put_exclusive(lock, h, ends)
  else
    put_shared(lock, h, ends)
  end
end

-- Forgets sharers, a slice at most.
local function drop_sharers(lock, claims)
  local weight = 0
  for _, text in ipairs(redis.call('HMGET', lock.details, unpack(claims))) do
    local h = text and decode('', text)
    weight = weight + (h and tonumber(h.weight) or 0)
  end
  if lock.held and lock.held.kind == 'shared' then
    change_weight(lock, -weight)
  end
  redis.call('ZREM', lock.sharers, unpack(claims))
  redis.call('HDEL', lock.details, unpack(claims))
end

-- The last sharer takes main along.
local function after_leaving(lock)
  local held = lock.held
  if not held or held.kind ~= 'shared' then
    return
  end
  local last, ends = last_sharer(lock)
  if not last then
    redis.call('DEL', lock.main)
    redis.call('HDEL', lock.details, '~w')
    lock.held = nil
  elseif ends < held.ends then
    held.ends = ends
    redis.call('PEXPIREAT', lock.main, whole(ends))
  end
end

-- A thread of work that goes on gets main for its next claim.
local function drop_main(lock)
  redis.call('DEL', lock.main)
  lock.held = nil
  while lock.shares and not lock.held do
    local last, ends = last_sharer(lock)
    if not last then
      return
    end
    local sibling = details_of(lock, last)
    drop_sharers(lock, { last })
    if sibling then
      write_exclusive(lock, sibling, ends)
    end
  end
end

-- The details of a claim that shares; nil if it does not. One of which nothing is known does not
-- share any more: its client hears that it is gone.
local function sharer_of(lock, claim)
  if not lock.shares or not redis.call('ZSCORE', lock.sharers, claim) then
    return nil
  end
  local h = details_of(lock, claim)
  if not h then
    drop_sharers(lock, { claim })
    after_leaving(lock)
  end
  return h
end

-- Moves the end of an exclusive lease later, never earlier.
local function extend_main(lock, span)
  if lock.held.ends < lock.now + span then
    lock.held.ends = lock.now + span
    redis.call('PEXPIREAT', lock.main, whole(lock.held.ends))
  end
end

-- Moves the end of a sharer's or sibling's lease later, never earlier.
local function extend_sharer(lock, h, span)
  local ends = lock.now + span
  redis.call('ZADD', lock.sharers, 'XX', 'GT', whole(ends), h.id)
  outlive(lock, { lock.sharers, lock.details }, ends)
  if lock.held.kind == 'shared' then
    write_shared(lock)
  elseif ends > lock.held.ends then
    drop_sharers(lock, { h.id })
    put_exclusive(lock, h, ends)
  end
end

-- Milliseconds until the first lease ends; -1 if none ever does.
local function retry_after(lock)
  local ends = lock.held and lock.held.ends or math.huge
  if lock.shares then
    local first = redis.call('ZRANGE', lock.sharers, 0, 0, 'WITHSCORES')
    ends = math.min(ends, moment(lock.sharers, first[2]) or ends)
  end
  return ends < math.huge and math.max(ends - lock.now, 0) or -1
end
