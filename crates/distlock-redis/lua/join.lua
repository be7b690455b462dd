-- Takes the usual place: at the end of a line in which no claim shares or wants to.
--
-- Needs    ask. joins: the claim, if one does. stem: what its details begin with. place: how long
--          it lives, in ms. taken: its ticket. floor: of its fence. ttl: what it asks for.
-- Leaves   joined, unless it is in line already.
local name = joins and taken and 'c:' .. client .. ':' .. joins
-- The one key that nobody has looked at yet comes first: if it is of another type, nothing is done.
if name and call('ZADD', places, '0', name)
  and call('HSETNX', details, joins,
    stem .. now_text .. '\n' .. taken .. '\n' .. floor .. '\n' .. ttl) == 1
then
  joined = true
  local sum, worth = summand(client, joins, taken)
  call('ZADD', queue_x, taken, name)
  if call('ZADD', clients, 'GT', now + place .. '', client) == 1 then
    call('HSET', details, sum, worth)
  else
    redis.pcall('HINCRBY', details, sum, worth)
  end
  -- A line that is kept alive lasts long enough for most who join it. A new one has no end yet,
  -- which is -1 here.
  if call('PTTL', queue_x) < place + SLACK / 2 then
    local ends = now + place + SLACK .. '' -- as outlive does in law.lua, which is not there yet
    for _, key in ipairs({ queue_x, clients, places, details }) do
      call('PEXPIREAT', key, ends, 'NX')
      call('PEXPIREAT', key, ends, 'GT')
    end
  end
end
