-- Those who ask, and nobody holds, waits or is buried. At most one of them is granted each key, so
-- one fence does for all of them.
if not taken then -- the counter is at its end: each is refused by itself
  for i = 1, asks do
    left_alone[#left_alone + 1] = releases + i
  end
  return args[2] .. args[1] .. ' 1 ' .. table.concat(left_alone, ' ')
end

local ask, ttl, pcall = args[1 + #keys], args[2 + #keys], redis.pcall
local rest = taken .. ' ' .. ask .. '\n' .. now_us_text

local details = {}
for i = 1, asks do
  details[i] = keys[1 + releases + i] .. ':d'
end
local all_plain = call('EXISTS', unpack(details)) == 0

for i = 1, asks do
  local at = releases + i
  local plain = all_plain or call('EXISTS', details[i]) == 0
  -- With GET the answer is what was there, or an error if that is no text: false means granted.
  if not plain or pcall('SET', keys[1 + at], args[1 + at] .. rest, 'NX', 'PX', ttl, 'GET') then
    left_alone[#left_alone + 1] = at
  end
end

local answer = args[2] .. args[1] .. ' ' .. taken
return left_alone[1] and answer .. ' ' .. table.concat(left_alone, ' ') or answer
