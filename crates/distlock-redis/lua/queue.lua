-- The law, continued: those who wait, and who of them is admitted.

local function queue_of(lock, h)
  return h.exclusive and lock.exclusive or lock.shared
end

-- The ticket under which a claim waits; nil if it does not.
local function ticket_of(lock, h)
  return h and digits(redis.call('ZSCORE', queue_of(lock, h), place_name(h.client, h.id)))
end

local function places_of(lock, prefix, most)
  return redis.call('ZRANGEBYLEX', lock.places, '[' .. prefix, '[' .. prefix .. '\255', 'LIMIT', 0,
    most)
end

local function leave_queue(lock, h)
  local place = place_name(h.client, h.id)
  redis.call('ZREM', queue_of(lock, h), place)
  if h.reentry ~= '' then
    redis.call('ZREM', lock.places, 'r:' .. h.reentry .. ':' .. h.id)
  end
  redis.call('ZREM', lock.places, place)
  redis.call('HDEL', lock.details, h.id)
end

-- A place has left its client. Without any, the heartbeat of the client means nothing here.
local function leave_client(lock, client, claim, ticket)
  local digest, number = place_hash(client, claim, ticket)
  if redis.pcall('HINCRBY', lock.details, digest, whole(-number)) == 0 then
    redis.call('HDEL', lock.details, digest)
    if #places_of(lock, 'c:' .. client .. ':', 1) == 0 then
      redis.call('ZREM', lock.clients, client)
    end
  end
end

-- A place of which nothing is known: a server that is short of memory, or an operator, has removed
-- the details and left the rest. Its client hears that it is gone.
local function forget_place(lock, place)
  redis.call('ZREM', lock.exclusive, place)
  redis.call('ZREM', lock.shared, place)
  redis.call('ZREM', lock.places, place)
end

local function join_client(lock, h, ticket)
  local place = place_name(h.client, h.id)
  redis.call('ZADD', lock.places, '0', place)
  redis.call('ZADD', queue_of(lock, h), ticket, place)
  local digest, number = place_hash(h.client, h.id, ticket)
  -- A digest too large for the server stays as it is: wrong, so that each place is looked at.
  redis.pcall('HINCRBY', lock.details, digest, whole(number))
end

-- Until when a place lives; nil if its client is not known.
local function lives_until(lock, h)
  return moment(lock.clients, redis.call('ZSCORE', lock.clients, h.client))
end

-- A client was heard of: all its places here live at least until then. `queue` is the key that may
-- be new.
local function hear_client(lock, client, queue, until_)
  redis.call('ZADD', lock.clients, 'GT', whole(until_), client)
  outlive(lock, { queue, lock.exclusive, lock.shared, lock.clients, lock.places, lock.details },
    until_)
end

-- The same, for a place that may have belonged to another client before.
local function hear_place(lock, h, ticket, client, until_)
  if h.client ~= client then
    local before = place_name(h.client, h.id)
    until_ = math.max(until_, lives_until(lock, h) or 0)
    redis.call('ZREM', queue_of(lock, h), before)
    redis.call('ZREM', lock.places, before)
    leave_client(lock, h.client, h.id, ticket)
    h.client = client
    redis.call('HSET', lock.details, h.id, encode(h))
    join_client(lock, h, ticket)
  end
  hear_client(lock, client, queue_of(lock, h), until_)
end

-- Takes a place at the end of the line.
local function enqueue(lock, h, ticket, place)
  mark_sides(lock)
  join_client(lock, h, ticket)
  h.fence = ticket
  redis.call('HSET', lock.details, h.id, encode(h))
  if not h.exclusive then
    redis.call('HSET', lock.details, '~s', '')
    lock.shares = true
  end
  if h.reentry ~= '' then
    redis.call('ZADD', lock.places, '0', 'r:' .. h.reentry .. ':' .. h.id)
  end
  hear_client(lock, h.client, queue_of(lock, h), lock.now + place)
end

-- The order in force: that of the claims that share, or else of the first that waits to share. A
-- claim on the whole capacity asks for none.
local function order_now(lock)
  if lock.held and lock.held.kind == 'shared' then
    return lock.held.order
  end
  local first = lock.shares and redis.call('ZRANGE', lock.shared, 0, 0)[1]
  local h = first and details_of(lock, claim_of(first))
  return h and h.order
end

-- Could this claim hold beside the present holders, if none waited?
local function fits(lock, h)
  local held = lock.held
  if not held then
    return true
  end
  return held.kind == 'shared' and not h.exclusive and held.group == h.group
    and weight_now(lock) + tonumber(h.weight) <= tonumber(h.capacity)
end

local function is_shared_next(order, exclusive_ticket, shared_ticket)
  return shared_ticket and (not exclusive_ticket or order == '2'
    or (order == '0' and tonumber(shared_ticket) < tonumber(exclusive_ticket)))
end

-- The place that the order serves next, its ticket and its queue.
local function peek(lock, order)
  local x = redis.call('ZRANGE', lock.exclusive, 0, 0, 'WITHSCORES')
  local s = lock.shares and redis.call('ZRANGE', lock.shared, 0, 0, 'WITHSCORES') or {}
  if is_shared_next(order, x[2], s[2]) then
    return s[1], digits(s[2]), lock.shared
  end
  return x[1], digits(x[2]), lock.exclusive
end

-- How many waiters the order puts ahead of a ticket, or of a newcomer without one.
local function ahead(lock, order, exclusive, ticket)
  local function earlier(queue)
    if not ticket then
      return redis.call('ZCARD', queue)
    end
    return redis.call('ZCOUNT', queue, '-inf', '(' .. ticket)
  end
  if exclusive and not lock.shares then
    return earlier(lock.exclusive)
  end
  local mine, others = lock.shared, lock.exclusive
  if exclusive then
    mine, others = others, mine
  end
  if order == '0' then
    return earlier(mine) + earlier(others)
  elseif order == (exclusive and '1' or '2') then
    return earlier(mine)
  end
  return earlier(mine) + redis.call('ZCARD', others)
end

-- Moves a waiter to the holders. Its lease is what is left of its place, and never longer than it
-- asked to hold.
local function enter(lock, h, ticket, fence, lives)
  leave_queue(lock, h)
  leave_client(lock, h.client, h.id, ticket)
  local ends = math.min(lives, lock.now + (tonumber(h.ttl) or 0))
  h.fence, h.since, h.floor, h.ttl = fence, lock.call.now_us, '', ''
  put(lock, h, ends)
  push(lock, h.client, 'granted ' .. h.id .. ' ' .. ticket .. ' ' .. fence)
end

-- The rest of a thread of work that was admitted is inside now, too.
local function enter_siblings(lock, reentry, fence)
  for _, name in ipairs(places_of(lock, 'r:' .. reentry .. ':', -1)) do
    local h = details_of(lock, claim_of(name))
    local ticket = ticket_of(lock, h)
    local lives = ticket and lives_until(lock, h)
    if lives then
      enter(lock, h, ticket, fence, lives)
    else
      redis.call('ZREM', lock.places, name)
    end
  end
end

-- Admits the first in line as long as there is room. At the end of the counter none is admitted.
local function admit(lock)
  local order
  while not lock.held or lock.held.kind == 'shared' do
    order = order or order_now(lock)
    local place, ticket, queue = peek(lock, order)
    if not place then
      return
    end
    local h = details_of(lock, claim_of(place))
    -- Details that belong to another place, or to a client that is not known, count as none.
    local sound = h and place_name(h.client, h.id) == place and queue_of(lock, h) == queue
    local lives = sound and lives_until(lock, h)
    if lives then
      local fence = fits(lock, h) and mint(lock.call, lock, given(h.floor), tonumber(h.ttl) or 0)
      if not fence then
        return
      end
      enter(lock, h, ticket, fence, lives)
      if h.reentry ~= '' then
        enter_siblings(lock, h.reentry, fence)
      end
    else
      forget_place(lock, place)
    end
  end
end

local function purge_holders(lock)
  if not lock.shares then
    return
  end
  -- Without its main key, or under a foreign one, no sharer has a claim any more.
  local holds = lock.held and lock.held.kind ~= 'foreign'
  local until_ = holds and whole(lock.now) or '+inf'
  repeat
    local ended = redis.call('ZRANGEBYSCORE', lock.sharers, '-inf', until_, 'LIMIT', 0, SLICE)
    if #ended > 0 then
      drop_sharers(lock, ended)
    end
  until #ended < SLICE
  if holds then
    after_leaving(lock)
  else
    redis.call('HDEL', lock.details, '~w')
  end
end

local function drop_client(lock, client)
  repeat
    local left = places_of(lock, 'c:' .. client .. ':', SLICE)
    for _, place in ipairs(left) do
      local h = details_of(lock, claim_of(place))
      if h then
        -- All places of the client go, and with them its digests.
        redis.call('HDEL', lock.details, (place_hash(client, h.id, h.fence)))
        leave_queue(lock, h)
      else
        forget_place(lock, place)
      end
    end
  until #left < SLICE
  redis.call('ZREM', lock.clients, client)
end

local function purge_waiters(lock)
  local now = whole(lock.now)
  repeat
    local dead = redis.call('ZRANGEBYSCORE', lock.clients, '-inf', now, 'LIMIT', 0, SLICE)
    for _, client in ipairs(dead) do
      drop_client(lock, client)
    end
  until #dead < SLICE
end

-- Drops all that is past its time, then admits. Where an exclusive holder is alone, there is
-- nothing.
local function settle(lock)
  if lock.alone then
    return
  end
  purge_holders(lock)
  purge_waiters(lock)
  if lock.buries then
    redis.call('ZREMRANGEBYSCORE', lock.tombstones, '-inf', whole(lock.now))
  end
  admit(lock)
end

local function is_dead(lock, claim)
  return lock.buries and claim and redis.call('ZSCORE', lock.tombstones, claim)
end

local function bury(lock, claim, until_)
  lock.buries = true
  mark_sides(lock)
  redis.call('ZADD', lock.tombstones, 'GT', whole(until_), claim)
  redis.call('ZREMRANGEBYRANK', lock.tombstones, 0, -TOMBSTONES_MAX - 1)
  redis.call('HSET', lock.details, '~x', '')
  -- As long as there are details of those who wait, so are they.
  outlive(lock, { lock.tombstones, lock.details, lock.exclusive, lock.shared, lock.clients,
    lock.places }, until_)
end
