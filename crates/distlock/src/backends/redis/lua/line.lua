-- The usual place: at the end of a line in which nobody shares or wants to.
--
-- ARGV  5 and on: what acquire_free.lua says.

-- The order that an ask is for, and its thread of work.
local function order_of(ask)
  return string.match(ask, '^[^\n]*\n[^\n]*\n([^\n]*)\n[^\n]*\n[^\n]*\n([^\n]*)\n')
end

-- Takes the place. False if the claim has one already. If somebody leaves whose place counts for the
-- same sum, that is settled with it: then the second answer is true.
local function join_line(claim, ticket, place, leaving, worth)
  if call('ZADD', queue_x, 'NX', ticket, claim) == 0 then
    return false
  end
  local capacity = string.match(ARGV[5], '%d+$', -10) -- it has ten digits at most
  local text = ARGV[5] .. '\n' .. capacity .. '\n' .. now_text .. '\n\n' .. ARGV[7]
  local sum, own = summand(client, claim, ticket)
  local settled = sum == leaving
  call('ZADD', places, 0, 'c:' .. client .. ':' .. claim)
  if call('ZADD', clients, 'GT', whole(now + place), client) == 1 then
    call('HSET', details, claim, text, '~o', order_of(ARGV[5]), sum, own)
  else
    call('HSET', details, claim, text)
    redis.pcall('HINCRBY', details, sum, settled and own - worth or own)
  end
  -- A line that somebody keeps alive lasts long enough for most who join it. One that is new has
  -- no end yet, which is -1 here.
  if call('PTTL', queue_x) < place + SLACK / 2 then
    for _, key in ipairs({ queue_x, clients, places, details }) do
      outlive(key, now + place)
    end
  end
  return true, settled
end
