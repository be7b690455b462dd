-- Many mutexes at once, each in the usual case: an exclusive holder lets go and nobody waits, or
-- somebody asks and nobody holds, waits or is buried there. Whatever is not so is left alone.
--
-- KEYS  1 fence, then the main keys: of those that are released, then of those that are asked for.
--       Side keys are called after them.
-- ARGV  1 how many are released, 2 how long the fence counter lives on, in ms, 3 the ask of all who
--       ask as in acquire_free.lua, 4 their ttl; then the claim ids of all, a space behind each.
-- Returns, as words, the first claim id, then 1 for each released and the fence of each granted.
-- 0 means that it is not the usual case.
local call, find, format = redis.call, string.find, string.format
local keys, args = KEYS, ARGV
local LIFE_STEP = 1e9 -- how far the counter goes, in microseconds, before its life begins anew
local releases = tonumber(args[1])
local asks, answers, sides = #keys - 1 - releases, {}, {}

for i = 1, releases do
  sides[i] = keys[1 + i] .. ':d'
end
for i = 1, asks do
  local main, at = keys[1 + releases + i], releases + 2 * i
  sides[at - 1], sides[at] = main .. ':d', main .. ':x'
end
local all_plain = call('EXISTS', unpack(sides)) == 0

local function release_all()
  local mine = {}
  local texts = call('MGET', unpack(keys, 2, 1 + releases))
  for i = 1, releases do
    local ours = texts[i] and find(texts[i], args[4 + i], 1, true) == 1
    if ours and (all_plain or call('EXISTS', sides[i]) == 0) then
      answers[i], mine[#mine + 1] = '1', keys[1 + i]
    else
      answers[i] = '0'
    end
  end
  if mine[1] and call('DEL', unpack(mine)) < #mine then
    -- Who is released twice is released by the first.
    local gone = {}
    for i = 1, releases do
      local main = keys[1 + i]
      answers[i], gone[main] = gone[main] and '0' or answers[i], gone[main] or answers[i] == '1'
    end
  end
end

local function whole(n)
  return format('%.0f', n)
end

-- So many numbers of the counter, from the present on: a function that tells each as a text.
local function numbers(seconds, micros)
  local first = tonumber(seconds) * 1000000 + micros
  local last = tonumber(call('SET', keys[1], whole(first + asks - 1), 'KEEPTTL', 'GET') or 0)
  local ahead = last >= first
  if ahead then
    first = last + 1
    call('SET', keys[1], whole(last + asks), 'PX', args[2])
  elseif math.floor(last / LIFE_STEP) < math.floor(first / LIFE_STEP) then
    call('PEXPIRE', keys[1], args[2])
  end
  return function(n)
    -- Mostly all of them are within this second: quicker to write down.
    local at = micros + n
    return not ahead and at > 99999 and at < 1000000 and seconds .. at or whole(first + n)
  end
end

local function acquire_all()
  local time, granted = call('TIME'), 0
  local number = numbers(time[1], tonumber(time[2]))
  local rest = ' ' .. args[3] .. '\n' .. time[1] .. string.sub(format('%06d', time[2]), 1, 3)
  for i = 1, asks do
    local at, side, answer = releases + i, releases + 2 * i, '0'
    if all_plain or call('EXISTS', sides[side - 1], sides[side]) == 0 then
      local fence = number(granted)
      if call('SET', keys[1 + at], args[4 + at] .. fence .. rest, 'NX', 'PX', args[4]) then
        answer, granted = fence, granted + 1
      end
    end
    answers[at] = answer
  end
end

if releases > 0 then
  release_all()
end
if asks > 0 then
  acquire_all()
end
return args[5] .. table.concat(answers, ' ')
