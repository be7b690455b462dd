-- Many mutexes at once, each in the usual case: an exclusive holder lets go and nobody waits, or
-- somebody asks and nobody holds, waits or is buried there. Whatever is not so is left alone.
--
-- KEYS  1 fence, then the main keys: of those that are released, then of those that are asked for.
--       Side keys are called after them.
-- ARGV  1 how many are released, 2 how long the fence counter lives on, in ms; then the claim ids
--       of those; then of each that is asked for the claim id, the ask as in acquire_free.lua and
--       the ttl.
-- Returns, as words, the first claim id, then 1 for each released and the fence of each granted.
-- 0 means that it is not the usual case.
local call, find, format = redis.call, string.find, string.format
local releases = tonumber(ARGV[1])
local asks, answers = #KEYS - 1 - releases, { ARGV[3] }

local function whole(n)
  return format('%.0f', n)
end

local function release_all()
  local sides, mine, gone = {}, {}, {}
  for i = 1, releases do
    sides[i] = KEYS[1 + i] .. ':d'
  end
  local nobody_waits = call('EXISTS', unpack(sides)) == 0
  local texts = call('MGET', unpack(KEYS, 2, 1 + releases))
  for i = 1, releases do
    -- Who is released twice is released by the first.
    local ours = texts[i] and find(texts[i], ARGV[2 + i] .. ' ', 1, true) == 1
      and not gone[KEYS[1 + i]]
    if ours and (nobody_waits or call('EXISTS', sides[i]) == 0) then
      mine[#mine + 1], gone[KEYS[1 + i]] = KEYS[1 + i], true
      answers[1 + i] = '1'
    else
      answers[1 + i] = '0'
    end
  end
  if mine[1] then
    call('DEL', unpack(mine))
  end
end

-- So many numbers of the counter, from the present on: a function that tells each as a text.
local function numbers(seconds, micros)
  local first = tonumber(seconds) * 1000000 + micros
  local last = tonumber(call('SET', KEYS[1], whole(first + asks - 1), 'PX', ARGV[2], 'GET') or 0)
  if last >= first then
    first = last + 1
    call('SET', KEYS[1], whole(last + asks), 'PX', ARGV[2])
  elseif micros + asks < 1000000 then
    -- All within this second: quicker to write down.
    return function(n)
      return format('%s%06d', seconds, micros + n)
    end
  end
  return function(n)
    return whole(first + n)
  end
end

local function acquire_all()
  local time, sides, granted = call('TIME'), {}, 0
  local number = numbers(time[1], tonumber(time[2]))
  local since = '\n' .. time[1] .. string.sub(format('%06d', time[2]), 1, 3)
  for i = 1, asks do
    local main = KEYS[1 + releases + i]
    sides[2 * i - 1], sides[2 * i] = main .. ':d', main .. ':x'
  end
  local all_free = call('EXISTS', unpack(sides)) == 0
  for i = 1, asks do
    local main, at, answer = KEYS[1 + releases + i], releases + 3 * i, '0'
    if all_free or call('EXISTS', sides[2 * i - 1], sides[2 * i]) == 0 then
      local fence = number(granted)
      local text = ARGV[at] .. ' ' .. fence .. ' ' .. ARGV[at + 1] .. since
      if call('SET', main, text, 'NX', 'PX', ARGV[at + 2]) then
        answer, granted = fence, granted + 1
      end
    end
    answers[1 + releases + i] = answer
  end
end

if releases > 0 then
  release_all()
end
if asks > 0 then
  acquire_all()
end
return table.concat(answers, ' ')
