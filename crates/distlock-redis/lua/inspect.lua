-- Looks at a key without changing anything. What is past its time is passed over, though it may
-- still be stored.

-- The places of both queues, in the sequence in which the order serves them.
local function places_in_order(lock, order, most)
  local function head_of(queue)
    return redis.call('ZRANGE', queue, 0, 2 * most, 'WITHSCORES')
  end
  local x, s, i, j = head_of(lock.exclusive), head_of(lock.shared), 1, 1
  return function()
    if is_shared_next(order, x[i + 1], s[j + 1]) then
      j = j + 2
      return s[j - 2]
    end
    i = i + 2
    return x[i - 2]
  end
end

-- Lists the holders, and counts them all.
local function show_holders(lock, most)
  local shown, held = {}, lock.held
  if not held then
    return shown, 0
  end
  local unknown = { reason = '', fence = 0, weight = 1, group = '', capacity = 0,
    since = lock.call.now_us }
  if held.kind == 'foreign' then
    unknown.owner, unknown.exclusive = 'foreign', true
    return { show_holder(lock, unknown, held.ends) }, 1
  elseif held.kind == 'exclusive' then
    shown[1] = show_holder(lock, held, held.ends)
  end
  local after = '(' .. whole(lock.now)
  local total = #shown + redis.call('ZCOUNT', lock.sharers, after, '+inf')
  local live = redis.call('ZREVRANGEBYSCORE', lock.sharers, '+inf', after, 'WITHSCORES', 'LIMIT', 0,
    most - #shown)
  for i = 1, #live, 2 do
    -- One of whom nothing is known excludes others until the lease ends, and is shown.
    unknown.owner = 'unreadable'
    local h = details_of(lock, live[i]) or unknown
    shown[#shown + 1] = show_holder(lock, h, moment(lock.sharers, live[i + 1]))
  end
  return shown, total
end

-- Lists the waiters, and counts them all.
local function show_waiters(lock, order, most)
  local total = redis.call('ZCARD', lock.exclusive) + redis.call('ZCARD', lock.shared)
  for _, client in ipairs(redis.call('ZRANGEBYSCORE', lock.clients, '-inf', whole(lock.now))) do
    local prefix = '[c:' .. client .. ':'
    total = total - redis.call('ZLEXCOUNT', lock.places, prefix, prefix .. '\255')
  end
  local shown = {}
  for place in places_in_order(lock, order, most) do
    local h = #shown < most and details_of(lock, claim_of(place))
    if h and (lives_until(lock, h) or 0) > lock.now then
      shown[#shown + 1] = reply(h.owner, h.reason, h.weight, h.exclusive and 1 or 0, h.group,
        ago(lock, h.since))
    end
  end
  return shown, total
end

-- ARGV  1 any text, which comes back first, 2 how many holders and waiters to show at most.
-- Returns, a line each and after that text, order or '', holders in all, waiters in all, how many
--       holders are shown, these, and the waiters that are shown. A holder is as in codec.lua, a
--       waiter is owner, reason, weight, 1 if exclusive, group, waited ms.
local function inspect(call, keys, args)
  local lock, most = open(call, keys), tonumber(args[2])
  refuse_wrong_type(lock)
  local order = order_now(lock)
  local holders, holders_total = show_holders(lock, most)
  local waiters, waiters_total = show_waiters(lock, order, most)
  local live = holders_total + waiters_total > 0
  local lines = { args[1], live and order or '', holders_total, waiters_total, #holders }
  for _, shown in ipairs({ holders, waiters }) do
    for _, one in ipairs(shown) do
      lines[#lines + 1] = one
    end
  end
  return table.concat(lines, '\n')
end
