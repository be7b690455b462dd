-- The usual wait: behind an exclusive holder, where nobody shares or wants to, nobody is buried and
-- all who wait are alive. Then nobody can enter now, and the place is at the end of the line, for
-- those who want one. Whatever is not so, the law decides.
--
-- Leaves   left: ms until the lease of the holder ends, -1 if it is not so; what it says of the
--          holder; ahead: how many wait. joins, and wanted for the ticket, if there is a place to
--          take.
local HELD = '^(%x+) (%d+) ([^\n]*)\n([^\n]*)\n[012]\n[^\n]*\n([^\n]*)\n[^\n]*\n'
  .. '(%d+)\n(%d%d%d%d+)(%+?)$'

local text = weight == '' and redis.pcall('GET', main)
local holder, fence, owner, reason, group, held_capacity, since, more =
  string.match(type(text) == 'string' and text or '', HELD)
local reentry = reentry_of(ask)
local left, ahead = -1, nil

local ours = holder and #holder == 32 and #fence <= 16 and #since <= 16
  and number(held_capacity) <= 4294967295
if ours and holder ~= id and reentry == '' then
  local oldest = call('ZRANGE', clients, '0', '0', 'WITHSCORES')
  local unusual = call('HMGET', details, '~s', '~x')
  if (not oldest[1] or number(oldest[2]) > now) and not (unusual[1] or unusual[2]) then
    left, ahead = call('PTTL', main), call('ZCARD', queue_x)
  end
end

if place and left >= 0 and ahead - most < 0 then
  joins, wanted = id, true
end
