-- Takes the usual place: at the end of a line in which nobody shares or wants to.
--
-- Needs    ask. joins: the claim, if one does. stem: what its details begin with. place: how long
--          it lives, in ms. upto: its ticket. floor: of its fence. leaving_sum and leaving_worth:
--          of whoever is about to leave, if anybody is.
-- Leaves   joined, unless it is in line already. settled: the sum is right for the one who leaves,
--          too.
if joins and call('HSETNX', details, joins, stem .. now_text .. '\n' .. upto .. '\n' .. floor) == 1
then
  joined = true
  local name = 'c:' .. client .. ':' .. joins
  local sum, worth, second = summand(client, joins, upto)
  call('ZADD', queue_x, upto, name)
  call('ZADD', places, '0', name)
  if call('ZADD', clients, 'GT', now + place .. '', client) == 1 then
    call('HSET', details, '~o', order_of(ask), sum, worth)
  else
    settled = sum == leaving_sum
    redis.pcall('HINCRBY', details, sum, settled and worth - leaving_worth or worth)
  end
  -- A line that somebody keeps alive lasts long enough for most who join it. One that is new has
  -- no end yet, which is -1 here. Whoever leaves it in the second of its own joining has just seen
  -- to that.
  if not (settled and time[1] == second and place - SLACK / 4 < 0)
    and call('PTTL', queue_x) < place + SLACK / 2 then
    local ends = now + place + SLACK .. '' -- as outlive does in law.lua, which is not there yet
    for _, key in ipairs({ queue_x, clients, places, details }) do
      call('PEXPIREAT', key, ends, 'NX')
      call('PEXPIREAT', key, ends, 'GT')
    end
  end
end
