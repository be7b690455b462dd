-- Those who ask, and nobody holds, waits or is buried. At most one of them is granted each key, so
-- one fence does for all of them.
local fence = next_number(now_us_text)
local rest, ttl = fence .. ' ' .. args[3] .. '\n' .. now_text, args[4]

local sides = {}
for i = 1, asks do
  local main = keys[1 + releases + i]
  sides[2 * i - 1], sides[2 * i] = main .. ':d', main .. ':x'
end
local all_plain = call('EXISTS', unpack(sides)) == 0

for i = 1, asks do
  local at = releases + i
  local plain = all_plain or call('EXISTS', sides[2 * i - 1], sides[2 * i]) == 0
  if not (plain and call('SET', keys[1 + at], args[4 + at] .. rest, 'NX', 'PX', ttl)) then
    left_alone[#left_alone + 1] = at
  end
end
return answer_with(fence)
