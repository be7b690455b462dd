-- Those who ask, and nobody holds, waits or is buried. At most one of them is granted each key, so
-- one fence does for all of them.
local fence = next_number(now_us_text)
local rest, ttl = fence .. ' ' .. args[3] .. '\n' .. now_text, args[4]

for i = 1, asks do
  local at, side = releases + i, releases + 2 * i
  local plain = all_plain or call('EXISTS', sides[side - 1], sides[side]) == 0
  if not (plain and call('SET', keys[1 + at], args[4 + at] .. rest, 'NX', 'PX', ttl)) then
    left_alone[#left_alone + 1] = at
  end
end
return answer_with(fence)
