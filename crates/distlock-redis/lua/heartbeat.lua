-- Verbs for many claims at once: renewals, and heartbeats of those who wait.

local COUNTED_MAX = 16

-- Renews exclusive holds, each by its main key alone, so that they live through the migration of a
-- slot and cost next to nothing.
--
-- KEYS  the main keys. ARGV  1 the span of all in ms, then the claim id of each.
-- Returns, a line each, the first claim id, then the fence of each, or 0 if it is not an exclusive
--       hold of its claim: then renew_one knows more. A key of another type counts as absent.
local function renew(_, keys, args)
  local texts, answers = redis.call('MGET', unpack(keys)), { args[2] }
  for i, text in ipairs(texts) do
    local fence = text and string.find(text, args[i + 1], 1, true) == 1
      and string.match(text, '^ (%d+) ', 33)
    if fence then
      redis.call('PEXPIRE', keys[i], args[1], 'GT') -- never shortens
    end
    answers[i + 1] = fence or '0'
  end
  return table.concat(answers, '\n')
end

-- One heartbeat for all places that a client has at a key.
--
-- ARGV  1 claim id, the first of all, 2 client, 3 span in ms, 4.. the claim ids.
-- Returns, after the claim id, ms until a lease ends or -1, the ticket of the first in line or '',
--       and for each claim its ticket and how many are ahead. A ticket of '' means that this client
--       does not wait under the claim. With many claims nobody is counted, and ahead is ''.
local function heartbeat(call, keys, args)
  local lock, client = open(call, keys), args[2]
  settle(lock)
  local order, counts = order_now(lock) or '0', #args - 3 <= COUNTED_MAX
  local _, head = peek(lock, order)
  local answers, waits = { args[1], retry_after(lock), head or '' }, false
  for from = 4, #args, SLICE do
    local names = {}
    for i = from, math.min(from + SLICE - 1, #args) do
      names[#names + 1] = place_name(client, args[i])
    end
    local x = redis.call('ZMSCORE', lock.exclusive, unpack(names))
    local s = lock.shares and redis.call('ZMSCORE', lock.shared, unpack(names)) or {}
    for i in ipairs(names) do
      local ticket = digits(x[i] or s[i])
      waits = waits or ticket
      answers[#answers + 1] = ticket or ''
      answers[#answers + 1] = ticket and counts and ahead(lock, order, x[i] and true, ticket) or ''
    end
  end
  if waits then
    hear_client(lock, client, lock.clients, lock.now + tonumber(args[3]))
  end
  close(lock)
  return table.concat(answers, '\n')
end

-- The same for places in groups, by their digests: says of each group whether it is as the client
-- believes. Equal digests mean equal places but for one chance in 2^51.
--
-- ARGV  1 claim id, 2 client, 3 span in ms; then of each group its second, how many places it has
--       and their digest, as the client believes (see `place_hash`).
-- Returns, after the claim id, ms until a lease ends or -1, the ticket of the first in line or '',
--       and a 1 for each group that is as believed, in one text. For a group with a 0, heartbeat
--       tells more.
local function digest(call, keys, args)
  local lock, client = open(call, keys), args[2]
  settle(lock)
  local fields, same, believed = {}, {}, 0
  for i = 4, #args, 3 do
    fields[#fields + 1] = '~' .. client .. ':' .. args[i]
  end
  for i, found in ipairs(redis.call('HMGET', lock.details, unpack(fields))) do
    local equal = found == args[3 + 3 * i]
    same[i] = equal and '1' or '0'
    believed = believed + (equal and tonumber(args[2 + 3 * i]) or 0)
  end
  -- Of the keys, a server that is short of memory, or an operator, may have removed only some.
  local function count(prefix)
    return redis.call('ZLEXCOUNT', lock.places, '[' .. prefix, '[' .. prefix .. '\255')
  end
  local waiting = redis.call('ZCARD', lock.exclusive) + redis.call('ZCARD', lock.shared)
  local there = believed > 0 and believed <= count('c:' .. client .. ':') and count('c:') == waiting
    and redis.call('ZSCORE', lock.clients, client)
  if there then
    hear_client(lock, client, lock.clients, lock.now + tonumber(args[3]))
  end
  close(lock)
  local _, head = peek(lock, order_now(lock))
  return reply(args[1], retry_after(lock), head or '',
    there and table.concat(same) or string.rep('0', #same))
end
