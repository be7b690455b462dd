-- The law, restated: who may hold what. The original is crates/distlock-core/src/law; every rule
-- here has its twin there, and random operations compare the two.
--
-- main     a string: an exclusive holder (see texts.lua), or '~shared <group>\n<order>' as long
--          as sharers live. Anything else was put there by a foreign client and holds exclusively.
--          A claim that was released but keeps the key goes by 'kept:<claim>', here as anywhere.
-- sharers  zset claim -> end of lease. Beside an exclusive main: the other claims of its thread of
--          work; main carries the one that ends last. They count only as long as main says so.
-- queues   zset place -> ticket, one for exclusive and one for shared claims. A place is called
--          'c:<client>:<claim>'. That is more than 64 bytes, so that a server keeps a short queue
--          in sequence, too, instead of as a list that it searches from end to end.
-- clients  zset client -> moment until which its places live.
-- places   zset of places and of 'r:<reentry>:<claim>', all of score 0: who waits for whom, found
--          by prefix.
-- details  hash claim -> text (see texts.lua), '~w' -> sum of the sharers' weights, '~o' -> order of
--          the queue, '~<client>:<number>' -> sum of what places of the client are worth
--          (see texts.lua); one that is missing is zero. '~s' is there as long as somebody shares
--          or wants to, '~x' as long as somebody is buried: whoever looks here need not look there.
-- graves   zset claim -> moment until which it stays dead.

local sharers, queue_s = KEYS[3] or main .. ':s', KEYS[5] or main .. ':qs'
local graves = KEYS[9] or main .. ':x'
local now_us, max = number(now_us_text), math.max
local GRAVES_MAX = 10000
local SLICE = 500 -- unpack breaks at about 8000

-- Nothing is left behind for ever. Side keys end a little later than what is in them, so that
-- whoever comes by in time removes it piece by piece, with all that belongs to it.
local function outlive(key, until_)
  local ends = until_ + SLACK .. ''
  redis.call('PEXPIREAT', key, ends, 'NX')
  redis.call('PEXPIREAT', key, ends, 'GT')
end

local function push(to, text)
  if tells_by ~= '-' then
    local channel = one_counter and string.sub(fence_key, 1, -6) .. 'push:'
      or string.match(caller, '^%S+ %d+ (.*)$')
    -- Denied or not, the grant stands: the waiter's next heartbeat tells.
    redis.pcall(tells_by == 'S' and 'SPUBLISH' or 'PUBLISH', channel .. to, text)
  end
end

local held -- what main says: kind 'exclusive', 'shared' or 'foreign'; nil if it is free

-- '..' and tostring print 14 digits only; fences have up to 16.
local function whole(n)
  return string.format('%.0f', n)
end

local function places_of(prefix, most)
  return call('ZRANGEBYLEX', places, '[' .. prefix, '[' .. prefix .. '\255', 'LIMIT', 0, most)
end

local function lines(text)
  local parts = {}
  for part in string.gmatch(text .. '\n', '([^\n]*)\n') do
    parts[#parts + 1] = part
  end
  return parts
end

-- What a text of ours says; nothing if it is not ours. Foreign values may look like anything.
local function read_exclusive(text, ends)
  local holder, fence, rest = string.match(text, '^(%S+) (%d+) (.*)$')
  local p = rest and lines(rest)
  if not p or #p ~= 8 or #fence > 16 then
    return nil
  end
  local claim = string.match(holder, '^%x+$') or string.match(holder, '^kept:(%x+)$')
  local ours = claim and #claim == 32 and string.match(p[3], '^[012]$')
    and string.match(p[7], '^%d+$') and #p[8] <= 17
    and string.match(p[8], '^%d%d%d%d+%+?$')
  if not ours then
    return nil
  end
  return {
    kind = 'exclusive', id = holder, fence = number(fence), owner = p[1], reason = p[2],
    order = p[3], client = p[4], group = p[5], reentry = p[6], capacity = number(p[7]),
    weight = number(p[7]), since = number(string.match(p[8], '^(%d+)%d%d%d')), exclusive = true,
    ends = ends, more = string.find(text, '+', -1, true) ~= nil,
  }
end

-- Every answer begins with the claim it is for, so that an answer to somebody else's question is
-- never mistaken for one's own.
local function reply(...)
  return { id, ... }
end

-- The last number given out: fences and tickets come from one counter.
local counter

local function mint(at_least)
  counter = max((counter or number(call('GET', fence_key) or 0)) + 1, at_least)
  return counter
end

-- The last thing that a script does.
local function finish()
  if counter then
    call('SET', fence_key, whole(counter), 'PX',
      one_counter and LIFE or string.match(caller, ' (%d+)'))
  end
  if call('EXISTS', sharers, queue_s) == 0 then
    call('HDEL', details, '~s')
  end
  if call('EXISTS', graves) == 0 then
    call('HDEL', details, '~x')
  end
end

local function exclusive_text(h)
  return table.concat({
    h.id .. ' ' .. whole(h.fence) .. ' ' .. h.owner,
    h.reason, h.order, h.client, h.group, h.reentry, whole(h.capacity), whole(h.since) .. '000+',
  }, '\n')
end

local function pack(h)
  return table.concat({
    h.owner, h.reason, h.order, h.client, h.group, h.reentry, whole(h.capacity), whole(h.weight),
    whole(h.since), h.fence and whole(h.fence) or '', h.floor or '',
  }, '\n')
end

local function unpack_details(claim, text)
  local p = lines(text)
  return {
    id = claim, owner = p[1], reason = p[2], order = p[3], client = p[4], group = p[5],
    reentry = p[6], capacity = number(p[7]), weight = number(p[8]), since = number(p[9]),
    fence = number(p[10]), floor = p[11], exclusive = p[7] == p[8],
  }
end

local function details_of(claim)
  local text = call('HGET', details, claim)
  return text and unpack_details(claim, text)
end

-- Who takes or shows a key of another type must hear of it; who lets go of one has lost it.
local get_main = redis.pcall

local function read_main()
  local text = get_main('GET', main)
  if not text then
    held = nil
    return
  end
  local left = call('PTTL', main)
  local ends = left >= 0 and now + left or nil
  if type(text) == 'table' then
    if not string.find(text.err, 'WRONGTYPE', 1, true) then
      error(text)
    end
    held = { kind = 'foreign', ends = ends }
    return
  end
  local group, order = string.match(text, '^~shared ([^\n]*)\n([012])$')
  if group and call('EXISTS', sharers) == 1 then
    held = { kind = 'shared', group = group, order = order, ends = ends }
    return
  end
  held = read_exclusive(text, ends) or { kind = 'foreign', ends = ends }
end

local function write_exclusive(h, ends)
  h.kind, h.exclusive, h.ends, h.more = 'exclusive', true, ends, true
  held = h
  call('SET', main, exclusive_text(h), 'PXAT', whole(ends))
end

-- From now on there are details. Whatever a foreign client has written stays as it is.
local function say_more()
  if held and held.kind == 'exclusive' and not held.more then
    call('APPEND', main, '+')
    held.more = true
  end
end

local function write_sibling(h, ends)
  say_more()
  call('HSET', details, h.id, pack(h), '~s', '')
  call('ZADD', sharers, whole(ends), h.id)
  outlive(sharers, ends)
  outlive(details, ends)
end

-- A thread of work may be inside with several claims: main carries the last to end.
local function put_exclusive(h, ends)
  if not held then
    write_exclusive(h, ends)
  elseif ends > held.ends then
    write_sibling(held, held.ends)
    write_exclusive(h, ends)
  else
    write_sibling(h, ends)
  end
end

local function write_shared()
  held.ends = number(call('ZRANGE', sharers, -1, -1, 'WITHSCORES')[2])
  call('SET', main, '~shared ' .. held.group .. '\n' .. held.order, 'PXAT', whole(held.ends))
  outlive(sharers, held.ends)
  outlive(details, held.ends)
end

local function put_shared(h, ends)
  held = held or { kind = 'shared', group = h.group, order = h.order }
  call('HSET', details, h.id, pack(h), '~s', '')
  call('HINCRBY', details, '~w', whole(h.weight))
  call('ZADD', sharers, whole(ends), h.id)
  write_shared()
end

-- Forgets sharers, whole slices at a time.
local function drop_sharers(claims)
  local weight = 0
  for _, text in ipairs(call('HMGET', details, unpack(claims))) do
    weight = weight + (text and unpack_details('', text).weight or 0)
  end
  call('ZREM', sharers, unpack(claims))
  call('HDEL', details, unpack(claims))
  if held and held.kind == 'shared' then
    call('HINCRBY', details, '~w', whole(-weight))
  end
end

local function drop_sharers_until(moment)
  repeat
    local ended = call('ZRANGEBYSCORE', sharers, '-inf', moment, 'LIMIT', 0, SLICE)
    if #ended > 0 then
      drop_sharers(ended)
    end
  until #ended < SLICE
end

-- The last sharer takes main along; a thread of work that goes on gets it for its next claim.
local function after_leaving()
  if held.kind == 'shared' and call('EXISTS', sharers) == 0 then
    call('DEL', main)
    call('HDEL', details, '~w')
    held = nil
  elseif held.kind == 'shared' then
    local last = number(call('ZRANGE', sharers, -1, -1, 'WITHSCORES')[2])
    if held.ends and last < held.ends then
      held.ends = last
      call('PEXPIREAT', main, whole(last))
    end
  end
end

local function drop_main()
  call('DEL', main)
  held = nil
  local last = call('ZRANGE', sharers, -1, -1, 'WITHSCORES')
  if last[1] then
    local sibling = details_of(last[1])
    drop_sharers({ last[1] })
    write_exclusive(sibling, number(last[2]))
  end
end

local function purge_holders()
  if held and held.kind ~= 'foreign' then
    drop_sharers_until(whole(now))
    after_leaving()
  else
    -- Main has ended, was deleted or taken by a foreign client, and with it all sharers' claims.
    drop_sharers_until('+inf')
    call('HDEL', details, '~w')
  end
end

local function place_of(h)
  return 'c:' .. h.client .. ':' .. h.id
end

local function queue_of(h)
  return h.exclusive and queue_x or queue_s
end

-- The ticket under which a claim waits; nothing if it does not.
local function ticket_of(h)
  return h and number(call('ZSCORE', queue_of(h), place_of(h)))
end

-- A place of which nothing is known: a server that is short of memory, or an operator, has removed
-- the details and left the rest. Its client hears that it is gone.
local function forget(place)
  call('ZREM', queue_x, place)
  call('ZREM', queue_s, place)
  call('ZREM', places, place)
end

local function leave_queue(h)
  call('ZREM', queue_of(h), place_of(h))
  call('ZREM', places, place_of(h), 'r:' .. h.reentry .. ':' .. h.id)
  if call('EXISTS', places) == 0 then
    call('HDEL', details, h.id, '~o')
  else
    call('HDEL', details, h.id)
  end
end

-- A place has left its client. Without any, the client's heartbeat means nothing here.
local function leave_client(name, claim, ticket)
  local sum, number_ = summand(name, claim, whole(ticket))
  if redis.pcall('HINCRBY', details, sum, -number_) == 0 then
    call('HDEL', details, sum)
  end
  if #places_of('c:' .. name .. ':', 1) == 0 then
    call('ZREM', clients, name)
  end
end

local function purge_waiters()
  repeat
    local dead = call('ZRANGEBYSCORE', clients, '-inf', whole(now), 'LIMIT', 0, SLICE)
    for _, name in ipairs(dead) do
      repeat
        local left = places_of('c:' .. name .. ':', SLICE)
        for _, place in ipairs(left) do
          local h = details_of(string.sub(place, -32))
          if h then
            -- All places of the client go, and with them its sums.
            call('HDEL', details, (summand(name, h.id, whole(ticket_of(h) or 0))))
            leave_queue(h)
          else
            forget(place)
          end
        end
      until #left < SLICE
      call('ZREM', clients, name)
    end
  until #dead < SLICE
end

local function order_now()
  return held and held.order or call('HGET', details, '~o') or nil
end

-- Could this claim hold beside those who hold now, whoever waits?
local function fits(h)
  if not held then
    return true
  end
  return held.kind == 'shared' and not h.exclusive and held.group == h.group
    and number(call('HGET', details, '~w')) + h.weight <= h.capacity
end

-- The place that the order serves next, and its ticket.
local function first(order)
  local x = call('ZRANGE', queue_x, '0', '0', 'WITHSCORES')
  local s = call('ZRANGE', queue_s, 0, 0, 'WITHSCORES')
  local shared_first = s[1]
    and (not x[1] or order == '2' or (order == '0' and number(s[2]) < number(x[2])))
  local chosen = shared_first and s or x
  return chosen[1], number(chosen[2])
end

-- Moves a waiter to the holders. Its lease is what is left of its place.
local function enter(h, ticket, fence)
  local ends = number(call('ZSCORE', clients, h.client))
  leave_queue(h)
  leave_client(h.client, h.id, ticket)
  h.fence, h.since, h.floor = fence, now, ''
  if h.exclusive then
    put_exclusive(h, ends)
  else
    put_shared(h, ends)
  end
  push(h.client, 'granted ' .. h.id .. ' ' .. whole(ticket) .. ' ' .. whole(fence))
end

local function admit()
  local order = order_now()
  local place, ticket = first(order)
  while place do
    local h = details_of(string.sub(place, -32))
    if h and not fits(h) then
      return
    end
    if h then
      local fence = mint(number(h.floor) or now_us)
      local reentry = h.reentry
      enter(h, ticket, fence)
      if reentry ~= '' then
        -- The rest of the same thread of work is inside now, too.
        for _, sibling in ipairs(places_of('r:' .. reentry .. ':', -1)) do
          local other = details_of(string.sub(sibling, -32))
          enter(other, ticket_of(other), fence)
        end
      end
    else
      forget(place)
    end
    place, ticket = first(order)
  end
end

local function purge()
  read_main()
  purge_holders()
  purge_waiters()
  call('ZREMRANGEBYSCORE', graves, '-inf', whole(now))
end

local function settle()
  purge()
  admit()
end

-- How many waiters the order puts ahead of a ticket, or of a newcomer without one.
local function ahead(order, exclusive, ticket)
  local function earlier(queue)
    if not ticket then
      return call('ZCARD', queue)
    end
    return call('ZCOUNT', queue, '-inf', '(' .. whole(ticket))
  end
  local mine, others = exclusive and queue_x or queue_s, exclusive and queue_s or queue_x
  local first_class = exclusive and '1' or '2'
  if order == '0' then
    return earlier(mine) + earlier(others)
  elseif order == first_class then
    return earlier(mine)
  end
  return earlier(mine) + call('ZCARD', others)
end

-- Milliseconds until the first lease ends; -1 if none ever does.
local function retry_after()
  local ends = held and held.ends
  local sharer = call('ZRANGE', sharers, 0, 0, 'WITHSCORES')
  if sharer[2] then
    ends = math.min(ends or number(sharer[2]), number(sharer[2]))
  end
  return ends and whole(max(ends - now, 0)) or '-1'
end

-- A client was heard of: all its places here live at least until then.
local function hear_client(until_)
  call('ZADD', clients, 'GT', whole(until_), client)
  until_ = number(call('ZSCORE', clients, client))
  for _, key in ipairs({ queue_x, queue_s, clients, places, details }) do
    outlive(key, until_)
  end
end

local function join_client(h, ticket)
  call('ZADD', queue_of(h), whole(ticket), place_of(h))
  call('ZADD', places, '0', place_of(h))
  local sum, number_ = summand(client, h.id, whole(ticket))
  -- A sum too large for the server stays as it is: wrong, and glance.lua takes it for nothing else.
  redis.pcall('HINCRBY', details, sum, number_)
end

-- The same, for a place that may have belonged to another client before.
local function hear(h, ticket, until_)
  if h.client ~= client then
    until_ = max(until_, number(call('ZSCORE', clients, h.client)))
    call('ZREM', queue_of(h), place_of(h))
    call('ZREM', places, place_of(h))
    leave_client(h.client, h.id, ticket)
    h.client = client
    call('HSET', details, h.id, pack(h))
    join_client(h, ticket)
  end
  hear_client(until_)
end

-- Moves the end of an exclusive lease later, never earlier.
local function extend_main(span)
  if held.ends and held.ends < now + span then
    held.ends = now + span
    call('PEXPIREAT', main, whole(held.ends))
  end
end

-- Moves the end of a sharer's or sibling's lease later, never earlier.
local function extend_sharer(claim, span)
  call('ZADD', sharers, 'XX', 'GT', whole(now + span), claim)
  if held.kind == 'shared' then
    write_shared()
  elseif held.ends < now + span then
    local h = details_of(claim)
    drop_sharers({ claim })
    put_exclusive(h, now + span)
  else
    outlive(sharers, now + span)
    outlive(details, now + span)
  end
end

local function bury(claim, until_)
  call('HSET', details, '~x', '')
  call('ZADD', graves, 'GT', whole(until_), claim)
  call('ZREMRANGEBYRANK', graves, 0, -GRAVES_MAX - 1)
  -- As long as there are details of those who wait, so are they.
  for _, key in ipairs({ details, graves, queue_x, queue_s, clients, places }) do
    outlive(key, until_)
  end
end
