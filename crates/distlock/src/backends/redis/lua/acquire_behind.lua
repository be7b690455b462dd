-- The usual wait: behind an exclusive holder, where nobody shares or wants to, nobody is buried and
-- all who wait are alive. Then nobody can enter now, and the place is at the end of the line.
-- Whatever is not so, the law decides.
--
-- Returns what acquire.lua returns.
local HELD = '^(%x+) (%d+) ([^\n]*)\n([^\n]*)\n([012])\n[^\n]*\n([^\n]*)\n[^\n]*\n'
  .. '(%d+)\n(%d+)$'

local function everybody_waits()
  local oldest = call('ZRANGE', clients, 0, 0, 'WITHSCORES')
  return (not oldest[1] or number(oldest[2]) > now) and call('EXISTS', sharers, queue_s, graves) == 0
end

-- Takes a place at the end of the line; how many are ahead, and the ticket. Without a ticket it is
-- not as usual: the line is full, or the claim is in it already.
local function line_up(order, place, most)
  local ahead = call('ZCARD', queue_x)
  local ticket = ahead < most and next_number(now_us_text)
  if not ticket or call('ZADD', queue_x, 'NX', ticket, id) == 0 then
    return
  end
  local capacity = string.match(ARGV[5], '%d+$')
  local text = ARGV[5] .. '\n' .. capacity .. '\n' .. now_text .. '\n\n' .. floor
  local sum, number_ = summand(client, id, ticket)
  call('ZADD', places, 0, 'c:' .. client .. ':' .. id)
  if call('ZADD', clients, 'GT', whole(now + place), client) == 1 then
    call('HSET', details, id, text, '~o', order, sum, number_)
  else
    call('HSET', details, id, text)
    redis.pcall('HINCRBY', details, sum, number_)
  end
  -- A line that somebody keeps alive lasts long enough for most who join it.
  if ahead == 0 or call('PTTL', queue_x) < place + SLACK / 2 then
    for _, key in ipairs({ queue_x, clients, places, details }) do
      outlive(key, now + place)
    end
  end
  return ahead, ticket
end

if ARGV[8] == '' and ARGV[9] ~= '' then
  local text = redis.pcall('GET', main)
  local holder, fence, owner, reason, order, group, capacity, since =
    string.match(type(text) == 'string' and text or '', HELD)
  local asked, reentry =
    string.match(ARGV[5], '^[^\n]*\n[^\n]*\n([^\n]*)\n[^\n]*\n[^\n]*\n([^\n]*)\n')
  local usual = holder and #holder == 32 and #fence <= 16 and holder ~= id and asked == order
    and reentry == '' and everybody_waits()
  local left = usual and call('PTTL', main) or -1
  if left >= 0 then
    local place, most = string.match(ARGV[9], '^(%d+) (%d+)$')
    local ahead, ticket = line_up(order, number(place), number(most))
    if ticket then
      return id .. '\nbusy\n' .. ticket .. '\n' .. ahead .. '\n' .. left .. '\n' .. owner .. '\n'
        .. reason .. '\n' .. fence .. '\n' .. capacity .. '\n1\n' .. group .. '\n'
        .. whole(now - number(since)) .. '\n' .. left
    end
  end
end
