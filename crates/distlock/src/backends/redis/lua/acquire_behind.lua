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
    and not call('ZSCORE', queue_x, id)
end

-- Takes a place at the end of the line; how many are ahead, and the ticket.
local function line_up(order, place, most)
  local ahead = call('ZCARD', queue_x)
  if ahead >= most then
    return ahead, nil
  end
  local ticket = next_number(now_us_text)
  local capacity = string.match(ARGV[5], '%d+$')
  call('ZADD', queue_x, ticket, id)
  call('HSET', details, id, ARGV[5] .. '\n' .. capacity .. '\n' .. now_text .. '\n\n' .. floor,
    '~o', order)
  call('ZADD', places, 0, 'c:' .. client .. ':' .. id)
  call('ZADD', clients, 'GT', whole(now + place), client)
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
    if not ticket then
      return id .. '\nfull'
    end
    return id .. '\nbusy\n' .. ticket .. '\n' .. ahead .. '\n' .. left .. '\n' .. owner .. '\n'
      .. reason .. '\n' .. fence .. '\n' .. capacity .. '\n1\n' .. group .. '\n'
      .. whole(now - number(since)) .. '\n' .. left
  end
end
