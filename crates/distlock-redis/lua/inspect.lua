-- Looks at a key without changing anything. What is past its time is passed over, though it may
-- still be stored.
--
-- ARGV  3 how many holders and waiters to show at most.
-- ARGV  1 any text, which comes back first.
-- Returns, after it, {order or '', holders in all, waiters in all, {holder..}, {waiter..}} with
--   holder: owner, reason, fence, weight, 1 if exclusive, group, held for ms, ms left or -1,
--     capacity or 0
--   waiter: owner, reason, weight, 1 if exclusive, group, waited ms
local most = number(ARGV[3])
local shown, waiting = {}, {}
local holders_total, waiters_total = 0, call('ZCARD', queue_x) + call('ZCARD', queue_s)

local function show(h, ends)
  shown[#shown + 1] = {
    h.owner, h.reason, whole(h.fence), whole(h.weight), h.exclusive and 1 or 0, h.group,
    whole(now - h.since), ends and whole(ends - now) or '-1', whole(h.capacity or 0),
  }
end

get_main = call
check_sides()
read_main()
if held and held.kind == 'foreign' then
  holders_total = 1
  show({ owner = 'foreign', reason = '', fence = 0, weight = 1, exclusive = true, group = '',
    since = now }, held.ends)
elseif held then
  if held.kind == 'exclusive' then
    holders_total = 1
    show(held, held.ends)
  end
  holders_total = holders_total + call('ZCOUNT', sharers, '(' .. whole(now), '+inf')
  local live = call('ZREVRANGEBYSCORE', sharers, '+inf', '(' .. whole(now), 'WITHSCORES',
    'LIMIT', 0, most - #shown)
  for i = 1, #live, 2 do
    local h = details_of(live[i])
    -- One of whom nothing is known excludes others until the lease ends, and is shown.
    h = h and h.fence and h or { owner = 'unreadable', reason = '', fence = 0, weight = 1,
      group = '', since = now }
    show(h, number(live[i + 1]))
  end
end

for _, name in ipairs(call('ZRANGEBYSCORE', clients, '-inf', whole(now))) do
  local prefix = 'c:' .. name .. ':'
  waiters_total = waiters_total - call('ZLEXCOUNT', places, '[' .. prefix, '[' .. prefix .. '\255')
end

-- Two queues, merged as the order serves them.
local order = order_now()
local function of(queue)
  return call('ZRANGE', queue, 0, 2 * most, 'WITHSCORES')
end
local x, s, i, j = of(queue_x), of(queue_s), 1, 1
while #waiting < most and (x[i] or s[j]) do
  local from_s = s[j]
    and (not x[i] or order == '2' or (order == '0' and number(s[j + 1]) < number(x[i + 1])))
  local claim = string.sub(from_s and s[j] or x[i], -32)
  if from_s then
    j = j + 2
  else
    i = i + 2
  end
  local h = details_of(claim)
  if h and (number(call('ZSCORE', clients, h.client)) or 0) > now then
    waiting[#waiting + 1] = {
      h.owner, h.reason, whole(h.weight), h.exclusive and 1 or 0, h.group, whole(now - h.since),
    }
  end
end

local live = holders_total + waiters_total > 0
return reply(live and order or '', holders_total, waiters_total, shown, waiting)
