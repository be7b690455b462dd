-- Whether it is so. Leaves ahead, and what number.lua and join.lua need.
local most, ahead
place, most = string.match(ARGV[5], '^(%d+) (%d+)$')
wanted, floor = true, ''

if next_claim then
  joins, and_next, ahead = ARGV[6], true, call('ZCARD', queue_x) - 1
  local one_order = next_ask == ARGV[3] or order_of(next_ask) == order_of(ARGV[3])
  if next_claim == joins or next_floor ~= '' or not one_order or ahead >= number(most) then
    return id
  end
elseif call('EXISTS', details) > 0 then
  return id
end
