-- The verbs, as they are called: `call` is what all requests of one call share, see `present` and
-- `mint`; KEYS are as in keys.lua. An argument that is empty or missing means none.

local verbs = {}
local ATTEMPTS_MAX = 8

local function refuse_wrong_type(lock)
  if lock.held and lock.held.wrong_type then
    error(lock.held.wrong_type)
  end
end

local function busy(lock, claim, ticket)
  local order = order_now(lock) or claim.order
  local last, ends = lock.held, lock.held and lock.held.ends
  if last and last.kind == 'shared' then
    local id
    id, ends = last_sharer(lock)
    last = details_of(lock, id)
  end
  local answer = reply(claim.id, 'busy', ticket or '',
    ahead(lock, order, claim.exclusive, ticket), retry_after(lock))
  return last and last.fence and reply(answer, show_holder(lock, last, ends)) or answer
end

-- The fence under which a thread of work is inside, if it is.
local function inside(lock, reentry)
  local held = lock.held
  if reentry == '' or not held or held.kind ~= 'exclusive' then
    return nil
  elseif held.reentry == reentry then
    return held.fence
  end
  local siblings = lock.shares and redis.call('ZRANGE', lock.sharers, 0, -1) or {}
  for _, sibling in ipairs(siblings) do
    local h = details_of(lock, sibling)
    if h and h.reentry == reentry then
      return h.fence
    end
  end
  return nil
end

-- Adds an attempt to a claim that has some; true if that changes them. With one too many it has none
-- from then on: no clean-up can tell any longer whether its attempt is the last.
local function join_attempts(h, attempt)
  local _, others = string.gsub(h.attempts, '%x+', '')
  if not attempt or others == 0 or string.find(h.attempts, attempt, 1, true) then
    return false
  end
  h.attempts = others < ATTEMPTS_MAX and h.attempts .. ',' .. attempt or ''
  return true
end

-- An ask for a claim that holds or waits already; nil if it does neither.
local function repeated(lock, claim, ask)
  local held = lock.held
  if held and held.id == claim.id then
    extend_main(lock, ask.ttl)
    if join_attempts(held, ask.attempt) then
      write_exclusive(lock, held, held.ends)
    end
    return reply(claim.id, 'granted', held.fence)
  end
  local h, ticket = sharer_of(lock, claim.id), nil
  if not h then
    h = details_of(lock, claim.id)
    ticket = ticket_of(lock, h)
    if not ticket then
      return nil
    end
  end
  if join_attempts(h, ask.attempt) then
    redis.call('HSET', lock.details, claim.id, encode(h))
  end
  if not ticket then
    extend_sharer(lock, h, ask.ttl)
    return reply(claim.id, 'granted', h.fence)
  elseif ask.place then
    hear_place(lock, h, ticket, claim.client, lock.now + ask.place)
  end
  return busy(lock, claim, ticket)
end

local function grant(lock, claim, ttl, fence)
  if not fence then
    return reply(claim.id, 'spent')
  end
  claim.fence, claim.floor, claim.ttl = fence, '', ''
  put(lock, claim, lock.now + ttl)
  return reply(claim.id, 'granted', fence)
end

local function decide(lock, claim, ask)
  local call, span = lock.call, math.max(ask.ttl, ask.place or 0)
  if is_dead(lock, claim.id) or is_dead(lock, ask.tombstone) then
    return reply(claim.id, 'dead')
  end
  local answer = repeated(lock, claim, ask)
  if answer then
    return answer
  end
  local order = order_now(lock)
  if order and order ~= claim.order and not claim.exclusive then
    return reply(claim.id, 'conflict')
  end
  local fence = inside(lock, claim.reentry)
  if fence then
    return grant(lock, claim, ask.ttl, fence)
  elseif fits(lock, claim) and ahead(lock, order or claim.order, claim.exclusive) == 0 then
    return grant(lock, claim, ask.ttl, mint(call, lock, given(claim.floor), span))
  elseif not ask.place then
    return busy(lock, claim)
  end
  local shared = lock.shares and redis.call('ZCARD', lock.shared) or 0
  if redis.call('ZCARD', lock.exclusive) + shared >= ask.most then
    return reply(claim.id, 'full')
  end
  local ticket = mint(call, lock, nil, span)
  if not ticket then
    return reply(claim.id, 'spent')
  end
  enqueue(lock, claim, ticket, ask.place)
  return busy(lock, claim, ticket)
end

-- Asks once for a claim that may have to wait.
--
-- ARGV  1 claim id, 2 owner, reason, order, client, group, reentry id and capacity, a line each,
--       3 ttl, 4 place and most waiters of one who waits, 5 weight if it is not the whole capacity,
--       6 fence floor, 7 the attempt that asks and its tombstone, 8 main key and claim id of the
--       witness: a claim that must hold, or the server has forgotten what it promised, 9 on a
--       cluster the largest fence that the client has seen.
-- Returns, a line each and after the claim id, 'granted', fence | 'busy', ticket or '', ahead, ms
--       until a lease ends or -1, the holder as in codec.lua if it is known | 'conflict' | 'full'
--       | 'dead' | 'forgot' | 'spent'.
local function acquire(call, keys, args)
  if given(args[8]) then
    local main, id = string.match(args[8], '^(.*) (%x+)$')
    local seen = redis.pcall('GET', main)
    if type(seen) ~= 'string' or string.sub(seen, 1, 32) ~= id then
      return reply(args[1], 'forgot')
    end
  end
  local ask = { ttl = tonumber(args[3]) }
  if given(args[4]) then
    local place, most = string.match(args[4], '^(%d+) (%d+)$')
    ask.place, ask.most = tonumber(place), tonumber(most)
  end
  if given(args[7]) then
    ask.attempt, ask.tombstone = string.match(args[7], '^(%x+) (%x+)$')
  end
  local claim = decode_ask(args[1], args[2], given(args[5]), args[6], args[3], ask.attempt)
  local lock = open(call, keys)
  claim.since = call.now_us
  refuse_wrong_type(lock)
  settle(lock)
  local answer = decide(lock, claim, ask)
  close(lock)
  return answer
end

-- The key stays taken until then, but by a claim that is dead.
local function keep_taken(lock, h, ends)
  bury(lock, h.id, ends)
  h.id, h.reentry, h.attempts = 'kept:' .. h.id, '', ''
  put(lock, h, ends)
end

local function give_up(lock, id, keep, until_dead)
  if until_dead > lock.now then
    bury(lock, id, until_dead)
  end
  local held = lock.held
  if held and held.id == id then
    drop_main(lock)
    if keep > 0 then
      keep_taken(lock, held, lock.now + keep)
    end
    return 'held'
  end
  local h = details_of(lock, id)
  local ticket = ticket_of(lock, h)
  if ticket then
    leave_queue(lock, h)
    leave_client(lock, h.client, id, ticket)
    return 'waiting'
  elseif lock.shares and redis.call('ZSCORE', lock.sharers, id) then
    drop_sharers(lock, { id })
    if h and keep > 0 then
      keep_taken(lock, h, lock.now + keep)
    else
      after_leaving(lock)
    end
    return 'held'
  end
  return 'gone'
end

-- Gives up one attempt, and the claim if it was the last. A claim that does not know the attempt is
-- left alone: it belongs to others.
local function give_up_attempt(lock, id, attempt, keep)
  local in_main = lock.held and lock.held.id == id
  local h = in_main and lock.held or details_of(lock, id)
  if not h or not string.find(h.attempts, attempt, 1, true) then
    return 'gone'
  elseif h.attempts == attempt then
    return give_up(lock, id, keep, 0)
  end
  local left = {}
  for other in string.gmatch(h.attempts, '%x+') do
    left[#left + 1] = other ~= attempt and other or nil
  end
  h.attempts = table.concat(left, ',')
  if in_main then
    write_exclusive(lock, h, h.ends)
  else
    redis.call('HSET', lock.details, id, encode(h))
  end
  return 'gone'
end

-- Ends every hold with this fence. The claims are dead for the rest of their leases, so that a
-- retry which is on its way cannot bring them back.
local function break_holds(lock, fence, until_dead)
  local hit = {}
  local function strike(h, ends)
    local id = string.sub(h.id, -32)
    hit[#hit + 1] = h
    bury(lock, id, math.max(ends, until_dead))
    push(lock, h.client, 'broken ' .. id)
  end
  local main_hit = lock.held and lock.held.fence == fence and lock.held.ends < math.huge
  if main_hit then
    strike(lock.held, lock.held.ends)
  end
  local sharers = lock.shares and redis.call('ZRANGE', lock.sharers, 0, -1, 'WITHSCORES') or {}
  for i = 1, #sharers, 2 do
    local h = details_of(lock, sharers[i])
    if h and h.fence == fence then
      strike(h, moment(lock.sharers, sharers[i + 1]))
      drop_sharers(lock, { sharers[i] })
    end
  end
  if main_hit then
    drop_main(lock)
  else
    after_leaving(lock)
  end
  return #hit > 0 and 'held' or 'gone'
end

-- Gives up a claim or an attempt, or breaks a hold, and admits those who are next.
--
-- ARGV  1 claim id, 2 ms to keep the key taken and ms for which the claim is dead, 3 the fence to
--       break, 4 the attempt that is given up and its tombstone.
-- Returns, after the claim id, 'held' | 'waiting' | 'gone'.
local function release(call, keys, args)
  local id, keep, dead = args[1], string.match(args[2] or '', '^(%d+) (%d+)$')
  local lock = open(call, keys)
  settle(lock)
  keep, dead = tonumber(keep) or 0, lock.now + (tonumber(dead) or 0)
  local outcome
  if given(args[3]) then
    outcome = break_holds(lock, args[3], dead)
  elseif given(args[4]) then
    local attempt, tombstone = string.match(args[4], '^(%x+) (%x+)$')
    if dead > lock.now then
      bury(lock, tombstone, dead)
    end
    outcome = give_up_attempt(lock, id, attempt, keep)
  else
    outcome = give_up(lock, id, keep, dead)
  end
  admit(lock)
  close(lock)
  return reply(id, outcome)
end

-- Raises a fence to a floor, if there is one.
local function raised(lock, fence, floor, span)
  if not floor then
    return fence
  end
  local number = math.max(tonumber(fence), floor)
  note_number(lock.call, lock, math.max(last_number(lock.call, lock.fence), number), span)
  return whole(number)
end

local function renew_main(lock, span, weight, floor)
  local held = lock.held
  extend_main(lock, span)
  if floor then
    -- All claims of a thread of work share one fence.
    held.fence = raised(lock, held.fence, floor, span)
    for _, sibling in ipairs(lock.shares and redis.call('ZRANGE', lock.sharers, 0, -1) or {}) do
      local h = details_of(lock, sibling)
      if h then
        h.fence = held.fence
        redis.call('HSET', lock.details, sibling, encode(h))
      end
    end
    write_exclusive(lock, held, held.ends)
  end
  if weight and weight < tonumber(held.weight) then
    -- A writer turns into a reader.
    held.weight, held.exclusive, lock.held = whole(weight), false, nil
    put_shared(lock, held, held.ends)
  end
  return held.fence
end

local function renew_sharer(lock, h, span, weight, floor)
  extend_sharer(lock, h, span)
  if lock.held.kind == 'exclusive' then
    return floor and renew_main(lock, 0, nil, floor) or lock.held.fence
  end
  h.fence = raised(lock, h.fence, floor, span)
  local before = tonumber(h.weight)
  local lower = math.min(weight or before, before)
  change_weight(lock, lower - before)
  h.weight = whole(lower)
  redis.call('HSET', lock.details, h.id, encode(h))
  return h.fence
end

local function renew_hold(lock, id, span, weight, floor)
  if lock.held and lock.held.id == id then
    return renew_main(lock, span, weight, floor)
  end
  local h = sharer_of(lock, id)
  return h and renew_sharer(lock, h, span, weight, floor)
end

-- Keeps one claim alive, held or waiting, and says where it stands.
--
-- ARGV  1 claim id, 2 client, 3 span in ms, 4 weight to lower to, 5 fence floor.
-- Returns, after the claim id, 'held', fence | 'gone' | 'waiting', ticket, ahead, ms until a lease
--       ends or -1.
local function renew_one(call, keys, args)
  local id, weight = args[1], tonumber(args[4])
  local lock, span = open(call, keys), tonumber(args[3])
  settle(lock)
  local h = details_of(lock, id)
  local ticket, answer = ticket_of(lock, h), nil
  if ticket then
    hear_place(lock, h, ticket, args[2], lock.now + span)
    answer = reply(id, 'waiting', ticket,
      ahead(lock, order_now(lock) or '0', h.exclusive, ticket), retry_after(lock))
  else
    local fence = renew_hold(lock, id, span, weight, tonumber(args[5]))
    answer = fence and reply(id, 'held', fence) or reply(id, 'gone')
  end
  if weight then
    admit(lock)
  end
  close(lock)
  return answer
end

-- Keeps a hold alive and writes its main key once more as it is, so that a replica which has this
-- write has the hold. A server may count only what a connection really wrote.
--
-- ARGV  1 claim id, 2 span in ms. Returns, after the claim id, 'held', fence | 'gone'.
local function confirm(call, keys, args)
  local lock = open(call, keys)
  settle(lock)
  local fence = renew_hold(lock, args[1], tonumber(args[2]))
  if fence then
    redis.call('SET', lock.main, redis.call('GET', lock.main), 'KEEPTTL')
  end
  close(lock)
  return fence and reply(args[1], 'held', fence) or reply(args[1], 'gone')
end
