-- Whether it is so. Leaves ahead, and what number.lua and join.lua need.
local ahead
wanted = true

if next_claim then
  joins, and_next, ahead = ARGV[2], true, call('ZCARD', queue_x) - 1
  local one_order = next_ask == ask or order_of(next_ask) == order_of(ask)
  if next_claim == joins or next_floor ~= '' or not one_order or ahead - most >= 0 then
    return id
  end
elseif call('EXISTS', details) > 0 then
  return id
end
