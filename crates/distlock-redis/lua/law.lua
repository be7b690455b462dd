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
-- details  hash claim -> text (see texts.lua), '~w' -> sum of the sharers' weights,
--          '~<client>:<number>' -> sum of what places of the client are worth
--          (see texts.lua); one that is missing is zero. '~s' is there as long as somebody shares
--          or wants to, '~x' as long as somebody is buried: whoever looks here need not look there.
--          '~a' -> '<claim> <attempts>' of an exclusive holder in main that has any; '~s' is there
--          with it, so that only the law changes such a key.
-- graves   zset claim -> moment until which it stays dead.

local sharers, queue_s = KEYS[3] or main .. ':s', KEYS[5] or main .. ':qs'
local graves = KEYS[9] or main .. ':x'
local now_us, max = number(now_us_text), math.max
local GRAVES_MAX = 10000
local NUMBER_MAX, CAPACITY_MAX = 9007199254740991, 4294967295
local SLICE = 500 -- unpack breaks at about 8000

-- Nothing is left behind for ever. Side keys end a little later than what is in them, so that
-- whoever comes by in time removes it piece by piece, with all that belongs to it.
local function outlive(key, until_)
  local ends = string.format('%.0f', until_ + SLACK)
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

-- '~a' is there.
local attempts_noted = false

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
  if not p or #p ~= 8 or #fence > 16 or number(fence) > NUMBER_MAX then
    return nil
  end
  local claim = string.match(holder, '^%x+$') or string.match(holder, '^kept:(%x+)$')
  local ours = claim and #claim == 32 and string.match(p[3], '^[012]$')
    and string.match(p[7], '^%d+$') and number(p[7]) <= CAPACITY_MAX and #p[8] <= 17
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

-- The last number given out: fences and tickets come from one counter. What is no number was not
-- written by us and counts as nothing.
local counter

local function last_number()
  return counter or number(call('GET', fence_key) or 0) or 0
end

-- The next number; nothing at the end of the counter.
local function mint(at_least)
  local next_number = max(last_number() + 1, at_least)
  if next_number > NUMBER_MAX then
    return nil
  end
  counter = next_number
  return counter
end

-- The last thing that a script does.
local function finish()
  if counter then
    call('SET', fence_key, whole(counter), 'PX',
      one_counter and LIFE or string.match(caller, ' (%d+)'))
  end
  if not attempts_noted and call('EXISTS', sharers, queue_s) == 0 then
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

-- Attempts are a line more, so that whoever does not expect them leaves the claim to the law.
local function pack(h)
  local attempts = h.attempts ~= '' and h.attempts or nil
  return table.concat({
    h.owner, h.reason, h.order, h.client, h.group, h.reentry, whole(h.capacity), whole(h.weight),
    whole(h.since), h.fence and whole(h.fence) or '', h.floor or '', h.ttl and whole(h.ttl) or '',
    attempts,
  }, '\n')
end

-- What a text of ours says; nothing if it is not ours.
local function unpack_details(claim, text)
  local p = lines(text)
  local capacity, weight = number(p[7]), number(p[8])
  if #p < 12 or #p > 13 or not (capacity and weight and number(p[9])) or not string.match(p[3], '^[012]$')
    or weight < 0 or weight > CAPACITY_MAX or capacity > CAPACITY_MAX
    or (number(p[10]) or 0) > NUMBER_MAX then
    return nil
  end
  return {
    id = claim, owner = p[1], reason = p[2], order = p[3], client = p[4], group = p[5],
    reentry = p[6], capacity = capacity, weight = weight, since = number(p[9]),
    fence = number(p[10]), floor = p[11], exclusive = p[7] == p[8], ttl = number(p[12]),
    attempts = p[13] or '',
  }
end

local function details_of(claim)
  local text = call('HGET', details, claim)
  return text and unpack_details(claim, text) or nil
end

-- Nothing is begun that cannot be ended: a side key of another type, or with times that cannot be,
-- was written by somebody else, and is said to be the fault. That is a fault of this lock alone.
local function check_sides()
  local function check(key, ...)
    local answer = redis.pcall(...)
    if type(answer) == 'table' and answer.err then
      if not string.find(answer.err, 'WRONGTYPE', 1, true) then
        error(answer)
      end
      error(redis.error_reply('WRONGTYPE ' .. key .. ' was not written by a lock: delete it'))
    elseif answer > 0 and key ~= details then
      error(redis.error_reply('WRONGTYPE ' .. key .. ' has a score that no lock writes: delete it'))
    end
  end
  for _, key in ipairs({ sharers, queue_x, queue_s, clients, places, graves }) do
    check(key, 'ZCOUNT', key, '(9007199254740991', '+inf')
  end
  check(details, 'HEXISTS', details, '~w')
end

-- Who takes or shows a key of another type must hear of it; who lets go of one has lost it.
local get_main = redis.pcall

local function read_main()
  attempts_noted = call('HGET', details, '~a')
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
  if held.kind == 'exclusive' then
    local of, attempts = string.match(attempts_noted or '', '^(%S+) (.*)$')
    held.attempts = of == held.id and attempts or ''
  end
end

-- Notes the attempts of the exclusive holder in main, or that there are none.
local function note_attempts(h)
  if h and (h.attempts or '') ~= '' then
    attempts_noted = h.id .. ' ' .. h.attempts
    call('HSET', details, '~a', attempts_noted, '~s', '')
    outlive(details, h.ends)
  elseif attempts_noted then
    attempts_noted = false
    call('HDEL', details, '~a')
  end
end

local function write_exclusive(h, ends)
  h.kind, h.exclusive, h.ends, h.more = 'exclusive', true, ends, true
  held = h
  call('SET', main, exclusive_text(h), 'PXAT', whole(ends))
  note_attempts(h)
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
  elseif held.ends and ends > held.ends then
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

-- The sum of the sharers' weights. Counted anew if it is missing or no number.
local function weight_now()
  local sum = call('HGET', details, '~w')
  if sum and #sum <= 16 and string.find(sum, '^%d+$') then
    return number(sum)
  end
  sum = 0
  for _, claim in ipairs(call('ZRANGE', sharers, 0, -1)) do
    local h = details_of(claim)
    sum = sum + (h and h.weight or 0)
  end
  return sum
end

local function change_weight(by)
  call('HSET', details, '~w', whole(max(weight_now() + by, 0)))
end

local function put_shared(h, ends)
  note_attempts(nil)
  held = held or { kind = 'shared', group = h.group, order = h.order }
  change_weight(h.weight)
  call('HSET', details, h.id, pack(h), '~s', '')
  call('ZADD', sharers, whole(ends), h.id)
  write_shared()
end

-- Forgets sharers, whole slices at a time.
local function drop_sharers(claims)
  local weight = 0
  for _, text in ipairs(call('HMGET', details, unpack(claims))) do
    local h = text and unpack_details('', text)
    weight = weight + (h and h.weight or 0)
  end
  if held and held.kind == 'shared' then
    change_weight(-weight)
  end
  call('ZREM', sharers, unpack(claims))
  call('HDEL', details, unpack(claims))
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
  note_attempts(nil)
  local last = call('ZRANGE', sharers, -1, -1, 'WITHSCORES')
  while last[1] and not held do
    local sibling = details_of(last[1])
    drop_sharers({ last[1] })
    if sibling and sibling.fence then
      write_exclusive(sibling, number(last[2]))
    end
    last = call('ZRANGE', sharers, -1, -1, 'WITHSCORES')
  end
end

-- The details of a claim that shares; nothing if it does not. One of which nothing is known does
-- not share any more: its client is told that it is gone.
local function sharer_of(claim)
  if not call('ZSCORE', sharers, claim) then
    return nil
  end
  local h = details_of(claim)
  if h and h.fence then
    return h
  end
  drop_sharers({ claim })
  if held then
    after_leaving()
  end
  return nil
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
  call('HDEL', details, h.id)
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

-- The order in force: that of the claims that share, or else of the first that waits to share. A
-- claim on the whole capacity asks for none.
local function order_now()
  if held and held.kind == 'shared' then
    return held.order
  end
  local first_shared = call('ZRANGE', queue_s, 0, 0)[1]
  local h = first_shared and details_of(string.sub(first_shared, -32))
  return h and h.order
end

-- Could this claim hold beside those who hold now, whoever waits?
local function fits(h)
  if not held then
    return true
  end
  return held.kind == 'shared' and not h.exclusive and held.group == h.group
    and weight_now() + h.weight <= h.capacity
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

-- Moves a waiter to the holders. Its lease is what is left of its place, and never longer than it
-- asked to hold.
local function enter(h, ticket, fence)
  local ends = number(call('ZSCORE', clients, h.client))
  ends = h.ttl and math.min(ends, now + h.ttl) or ends
  leave_queue(h)
  leave_client(h.client, h.id, ticket)
  h.fence, h.since, h.floor, h.ttl = fence, now, '', nil
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
    -- Details that belong to another place, or to a client that is not heard of, count as none.
    h = h and place_of(h) == place and ticket_of(h) and call('ZSCORE', clients, h.client) and h
    if h and not fits(h) then
      return
    end
    if h then
      local fence = mint(number(h.floor) or now_us)
      if not fence then
        return -- the counter is at its end: whoever asks hears of it
      end
      local reentry = h.reentry
      enter(h, ticket, fence)
      if reentry ~= '' then
        -- The rest of the same thread of work is inside now, too.
        for _, sibling in ipairs(places_of('r:' .. reentry .. ':', -1)) do
          local other = details_of(string.sub(sibling, -32))
          local its_ticket = ticket_of(other)
          if its_ticket and call('ZSCORE', clients, other.client) then
            enter(other, its_ticket, fence)
          else
            call('ZREM', places, sibling)
          end
        end
      end
    else
      forget(place)
    end
    place, ticket = first(order)
  end
end

local function purge()
  check_sides()
  read_main()
  if attempts_noted and (not held or held.attempts == '' or held.kind ~= 'exclusive') then
    note_attempts(nil) -- of a holder that has gone
  end
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
    until_ = max(until_, number(call('ZSCORE', clients, h.client)) or 0)
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
  elseif held.ends and held.ends < now + span then
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
