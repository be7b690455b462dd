-- Lets time pass for all locks of a server that no other test uses, by making everything older.
--
-- ARGV  1 milliseconds.
-- Leases, places and graves end sooner; holders and waiters look as if they had begun earlier.
--
-- Before that it looks at what must be so, but for what is rounded off. What is in a side key never
-- outlives the key. And the details of a key say truly that a claim shares, wants to, or is buried,
-- and live as long: the usual cases look nowhere else.
local while_ = tonumber(ARGV[1])
local ROUNDED = 1000
local ENDS = { s = true, c = true, x = true } -- by score
local MARKS = { s = '~s', qs = '~s', x = '~x' }

local function is_marked(key, side)
  local bare, rest = string.match(key, '^(distlock%-side:{.-}:)%l+(:.*)$')
  local details = bare and bare .. 'd' .. rest or string.sub(key, 1, -1 - #side) .. 'd'
  local left, longer = redis.call('PTTL', key), redis.call('PTTL', details)
  local says_so = redis.call('HEXISTS', details, MARKS[side]) == 1 and longer + ROUNDED > left
  -- What is about to end has been empty for long.
  return left >= 0 and (says_so or left < ROUNDED)
end

local function outlives(key)
  local last = redis.call('ZRANGE', key, -1, -1, 'WITHSCORES')[2]
  local time = redis.call('TIME')
  local now = tonumber(time[1]) * 1000 + tonumber(time[2]) / 1000
  return tonumber(last) <= now + redis.call('PTTL', key) + ROUNDED
end

-- The eighth line of a record is the moment since when, in microseconds.
local function older(text)
  local parts, at = {}, 0
  for part in string.gmatch(text .. '\n', '([^\n]*)\n') do
    at = at + 1
    local moment, mark = string.match(part, '^(%d+)(%+?)$')
    parts[at] = at == 8 and moment and string.format('%.0f', tonumber(moment) - while_ * 1000) .. mark
      or part
  end
  return table.concat(parts, '\n')
end

local function side_of(key)
  return string.match(key, '^distlock%-side:{.-}:(%l+):') or string.match(key, ':(%l+)$')
end

local keys = redis.call('KEYS', '*')
for _, key in ipairs(keys) do
  local side = side_of(key)
  if MARKS[side] and not is_marked(key, side) then
    return redis.error_reply(key .. ' is there and the details do not say so')
  elseif ENDS[side] and redis.call('TYPE', key).ok == 'zset' and not outlives(key) then
    return redis.error_reply(key .. ' ends before what is in it')
  end
end

for _, key in ipairs(keys) do
  local kind, side = redis.call('TYPE', key).ok, side_of(key)
  local left = redis.call('PTTL', key)
  if kind == 'zset' and ENDS[side] then
    for _, member in ipairs(redis.call('ZRANGE', key, 0, -1)) do
      redis.call('ZINCRBY', key, -while_, member)
    end
  elseif kind == 'hash' then
    for _, field in ipairs(redis.call('HKEYS', key)) do
      if string.sub(field, 1, 1) ~= '~' then
        redis.call('HSET', key, field, older(redis.call('HGET', key, field)))
      end
    end
  elseif kind == 'string' and string.match(redis.call('GET', key), '^%S+ %d+ .*\n') then
    redis.call('SET', key, older(redis.call('GET', key)), 'KEEPTTL')
  end
  if left >= 0 and left <= while_ then
    redis.call('DEL', key)
  elseif left >= 0 then
    redis.call('PEXPIRE', key, string.format('%.0f', left - while_))
  end
end
return 'OK'
