-- Lets go of what fenced.lua has taken.
--
-- KEYS  main. ARGV  claim id.
local text = redis.call('GET', KEYS[1])
if text and string.find(text, ARGV[1], 1, true) == 1 then
  return redis.call('DEL', KEYS[1])
end
return 0
