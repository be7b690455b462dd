-- Asks once for a claim that may have to wait.
--
-- Returns, a line each and after the claim id, 'granted', fence | 'busy', ticket or '', ahead,
-- ms until a lease ends or -1, holder.. | 'conflict' | 'full' | 'dead' | 'forgot' | 'spent'
-- where holder is: owner, reason, fence, weight, 1 if exclusive, group, held for ms, ms left or -1;
-- nothing for a holder of which nothing is known.
local p = lines(ask)
ttl = number(ttl)
local claim = {
  id = id, owner = p[1], reason = p[2], order = p[3], client = p[4], group = p[5], reentry = p[6],
  capacity = number(p[7]), weight = number(weight) or number(p[7]), floor = floor, since = now,
  ttl = ttl,
}
-- A call for a claim whose id its caller chose, and under what the call is buried.
local attempt, tombstone = string.match(ARGV[10] or '', '^(%x+) (%x+)$')
claim.attempts = attempt or ''
local ATTEMPTS_MAX = 8
place, most = number(place), number(most)
claim.exclusive = claim.weight == claim.capacity

local function busy(ticket)
  local shown = ticket and whole(ticket) or ''
  local order = order_now() or claim.order
  local answer = reply('busy', shown, ahead(order, claim.exclusive, ticket), retry_after())
  local last, ends = held, held and held.ends
  if held and held.kind == 'shared' then
    local found = call('ZRANGE', sharers, -1, -1, 'WITHSCORES')
    last, ends = details_of(found[1]), number(found[2])
  end
  if last and last.fence then
    for _, value in ipairs({
      last.owner, last.reason, whole(last.fence), whole(last.weight), last.exclusive and 1 or 0,
      last.group, whole(now - last.since), ends and whole(ends - now) or '-1',
    }) do
      answer[#answer + 1] = value
    end
  end
  return answer
end

-- The fence under which a thread of work is inside, if it is.
local function inside(reentry)
  if reentry == '' or not held or held.kind ~= 'exclusive' then
    return nil
  elseif held.reentry == reentry then
    return held.fence
  end
  for _, sibling in ipairs(call('ZRANGE', sharers, 0, -1)) do
    local h = details_of(sibling)
    if h and h.reentry == reentry then
      return h.fence
    end
  end
  return nil
end

local function grant(fence)
  if not fence then
    return reply('spent')
  end
  claim.fence, claim.ttl = fence, nil
  if claim.exclusive then
    put_exclusive(claim, now + ttl)
  else
    put_shared(claim, now + ttl)
  end
  return reply('granted', whole(fence))
end

local function queue()
  local ticket = mint(now_us)
  if not ticket then
    return reply('spent')
  end
  if not claim.exclusive then
    call('HSET', details, '~s', '')
  end
  claim.fence = ticket
  call('HSET', details, id, pack(claim))
  say_more()
  join_client(claim, ticket)
  if claim.reentry ~= '' then
    call('ZADD', places, '0', 'r:' .. claim.reentry .. ':' .. id)
  end
  hear_client(now + place)
  return busy(ticket)
end

-- Adds this attempt to a claim that has some. True if it is new.
local function joins_attempts(h)
  local _, others = string.gsub(h.attempts, '%x+', '')
  if not attempt or others == 0 or others >= ATTEMPTS_MAX
    or string.find(h.attempts, attempt, 1, true) then
    return false
  end
  h.attempts = h.attempts .. ',' .. attempt
  return true
end

local function answer()
  if call('ZSCORE', graves, id) or (tombstone and call('ZSCORE', graves, tombstone)) then
    return reply('dead')
  elseif held and held.id == id then
    extend_main(ttl)
    if joins_attempts(held) then
      note_attempts(held)
    end
    return reply('granted', whole(held.fence))
  end
  local sharer = sharer_of(id)
  if sharer then
    if joins_attempts(sharer) then
      call('HSET', details, id, pack(sharer))
    end
    extend_sharer(id, ttl)
    return reply('granted', whole(sharer.fence))
  end
  local known = details_of(id)
  local ticket = ticket_of(known)
  if ticket then
    if joins_attempts(known) then
      call('HSET', details, id, pack(known))
    end
    if place then
      hear(known, ticket, now + place)
    end
    return busy(ticket)
  end
  local order = order_now()
  local waiting = call('ZCARD', queue_x) + call('ZCARD', queue_s)
  if order and order ~= claim.order and not claim.exclusive then
    return reply('conflict')
  end
  local reentered = inside(claim.reentry)
  if reentered then
    return grant(reentered)
  elseif ahead(order or claim.order, claim.exclusive, nil) == 0 and fits(claim) then
    return grant(mint(number(claim.floor) or now_us))
  elseif not place then
    return busy(nil)
  elseif waiting >= most then
    return reply('full')
  end
  return queue()
end

get_main = call
settle()
local result = answer()
finish()
return table.concat(result, '\n')
