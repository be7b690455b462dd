-- How holders and waiters are written down. Labels contain no line breaks.
--
-- main     '<claim> <fence> <owner>', then reason, order, client, group, reentry id, capacity and
--          the moment since when, a line each. The first line is for people and foreign clients.
--          A '+' at the end says that there may be details; without it there are none.
-- details  owner, reason, order, client, group, reentry id, capacity, weight, since, fence, floor.
local queue_x, queue_s, clients = KEYS[4], KEYS[5], KEYS[6]
local sharers, places, details, graves = KEYS[3], KEYS[7], KEYS[8], KEYS[9]
if not sharers then
  sharers, queue_x, queue_s = main .. ':s', main .. ':qx', main .. ':qs'
  clients, places, details, graves = main .. ':c', main .. ':p', main .. ':d', main .. ':x'
end
local client, now = ARGV[2], number(now_text)
local SLACK = 60000

-- Nothing is left behind for ever. Side keys end a little later than what is in them, so that
-- whoever comes by in time removes it piece by piece, with all that belongs to it.
local function outlive(key, until_)
  local left = call('PTTL', key)
  until_ = until_ + SLACK
  if left == -1 or (left >= 0 and now + left < until_) then
    call('PEXPIREAT', key, whole(until_))
  end
end

local function push(to, text)
  local verb, channel = string.match(ARGV[3], '^(%u+) (.*)$')
  if verb then
    -- Denied or not, the grant stands: the waiter's next heartbeat tells.
    redis.pcall(verb, channel .. to, text)
  end
end

-- The places of a client that were taken within a second, more or less, are summed up under one
-- name. So newcomers change the last sum only and those who enter mostly the first. What a place adds
-- is as good as random by the claim, and another number under another ticket.
--
-- Returns the name and the number, which is below 2^52 so that the server writes it as it is.
local function summand(of, claim, ticket)
  return '~' .. of .. ':' .. math.floor(ticket / 1048576),
    number(string.sub(claim, -13), 16) - 2251799813685248 + ticket % 1099511627776
end

local function places_of(prefix, most)
  return call('ZRANGEBYLEX', places, '[' .. prefix, '[' .. prefix .. '\255', 'LIMIT', 0, most)
end
