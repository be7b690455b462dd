-- The least that a lock with a fence and a queue can be: no holder and no waiter, a number
-- that always grows, and the hold itself.
--
-- KEYS  main, counter. ARGV  claim id, ttl in ms.
local main = KEYS[1]
if redis.call('EXISTS', main, main .. ':d') > 0 then
  return false
end
local time = redis.call('TIME')
local fence = time[1] .. string.rep('0', 6 - #time[2]) .. time[2]
local last = redis.call('SET', KEYS[2], fence, 'KEEPTTL', 'GET')
if last and last >= fence then
  fence = string.format('%.0f', last + 1)
  redis.call('SET', KEYS[2], fence, 'KEEPTTL')
end
redis.call('SET', main, ARGV[1] .. ' ' .. fence, 'PX', ARGV[2])
return fence
