-- Those who ask, and nobody holds, waits or is buried. At most one of them is granted each key, so
-- one fence does for all of them.
local rest, ttl = taken .. ' ' .. args[2] .. '\n' .. now_us_text, args[3]

local details = {}
for i = 1, asks do
  details[i] = keys[releases + i] .. ':d'
end
local all_plain = call('EXISTS', unpack(details)) == 0

for i = 1, asks do
  local at = releases + i
  local plain = all_plain or call('EXISTS', details[i]) == 0
  if not (plain and call('SET', keys[at], args[3 + at] .. rest, 'NX', 'PX', ttl)) then
    left_alone[#left_alone + 1] = at
  end
end

local answer = args[4] .. args[1] .. ' ' .. taken
return left_alone[1] and answer .. ' ' .. table.concat(left_alone, ' ') or answer
