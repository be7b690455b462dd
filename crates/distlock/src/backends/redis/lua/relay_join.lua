-- Whether it is so. Leaves ahead, and what number.lua, join.lua and enter.lua need.
local most, ahead
place, most = string.match(ARGV[5], '^(%d+) (%d+)$')
wanted, floor = true, ''

if next_claim then
  joins, and_next, ahead = ARGV[6], true, call('ZCARD', queue_x) - 1
  local one_order = next_ask == ARGV[3] or order_of(next_ask) == order_of(ARGV[3])
  if next_claim == joins or next_floor ~= '' or not one_order or ahead >= number(most) then
    return id
  end
  leaving_sum, leaving_worth = summand(next_client, next_claim, next_ticket)
elseif call('EXISTS', details) > 0 then
  return id
end
