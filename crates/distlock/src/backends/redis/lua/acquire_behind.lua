-- The usual wait: behind an exclusive holder, where nobody shares or wants to, nobody is buried and
-- all who wait are alive. Then nobody can enter now, and the place is at the end of the line, for
-- those who want one. Whatever is not so, the law decides.
--
-- Returns what acquire.lua returns.
local HELD = '^(%x+) (%d+) ([^\n]*)\n([^\n]*)\n([012])\n[^\n]*\n([^\n]*)\n[^\n]*\n'
  .. '(%d+)\n(%d+)(%+?)$'

local function everybody_waits()
  local oldest = call('ZRANGE', clients, 0, 0, 'WITHSCORES')
  return (not oldest[1] or number(oldest[2]) > now) and call('EXISTS', sharers, queue_s, graves) == 0
end

if ARGV[8] == '' then
  local text = redis.pcall('GET', main)
  local holder, fence, owner, reason, order, group, capacity, since, more =
    string.match(type(text) == 'string' and text or '', HELD)
  local asked, reentry = order_of(ARGV[5])
  local usual = holder and #holder == 32 and #fence <= 16 and holder ~= id and asked == order
    and reentry == '' and everybody_waits()
  local left = usual and call('PTTL', main) or -1
  if left >= 0 then
    local place, most = string.match(ARGV[9], '^(%d+) (%d+)$')
    local ahead = call('ZCARD', queue_x)
    local ticket = place and ahead < number(most) and next_number(now_us_text)
    local joined = ticket and join_line(id, ticket, number(place))
    if joined and more == '' then
      call('APPEND', main, '+')
    end
    -- Whoever has come for this moment only may be in line from before.
    if joined or (not place and (ahead == 0 or not call('ZSCORE', queue_x, id))) then
      return id .. '\nbusy\n' .. (ticket or '') .. '\n' .. ahead .. '\n' .. left .. '\n' .. owner
        .. '\n' .. reason .. '\n' .. fence .. '\n' .. capacity .. '\n1\n' .. group .. '\n'
        .. whole(now - number(since)) .. '\n' .. left
    end
  end
end
