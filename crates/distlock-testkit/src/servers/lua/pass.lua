-- Lets time pass for all locks of a server that nobody else uses, by making everything older.
--
-- ARGV  1 milliseconds.
-- Leases, places and graves end sooner; holders and waiters look as if they had begun earlier.
local while_ = tonumber(ARGV[1])

local function older(text, line)
  local parts, at = {}, 0
  for part in string.gmatch(text .. '\n', '([^\n]*)\n') do
    at = at + 1
    local moment, mark = string.match(part, '^(%d+)(%+?)$')
    parts[at] = at == line and string.format('%.0f', tonumber(moment) - while_) .. mark or part
  end
  return table.concat(parts, '\n')
end

for _, key in ipairs(redis.call('KEYS', '*')) do
  local kind = redis.call('TYPE', key).ok
  local side = string.match(key, '^distlock%-side:{.-}:(%l+):') or string.match(key, ':(%l+)$')
  local left = redis.call('PTTL', key)
  if kind == 'zset' and (side == 's' or side == 'c' or side == 'x') then
    for _, member in ipairs(redis.call('ZRANGE', key, 0, -1)) do
      redis.call('ZINCRBY', key, -while_, member)
    end
  elseif kind == 'hash' then
    for _, field in ipairs(redis.call('HKEYS', key)) do
      if string.sub(field, 1, 1) ~= '~' then
        redis.call('HSET', key, field, older(redis.call('HGET', key, field), 9))
      end
    end
  elseif kind == 'string' and string.match(redis.call('GET', key), '^%S+ %d+ .*\n') then
    redis.call('SET', key, older(redis.call('GET', key), 8), 'KEEPTTL')
  end
  if left >= 0 and left <= while_ then
    redis.call('DEL', key)
  elseif left >= 0 then
    redis.call('PEXPIRE', key, string.format('%.0f', left - while_))
  end
end
return 'OK'
