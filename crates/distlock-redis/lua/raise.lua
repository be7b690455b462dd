-- Raises the counter that all keys share to the largest number that a client has seen: the server
-- may be a replica that became the primary without the last numbers, and its clock may be behind.
--
-- KEYS  1 the counter. ARGV  1 the number, 2 for how many ms the counter lives on.
local last = redis.pcall('GET', KEYS[1])
if not last or (type(last) == 'string' and (tonumber(last) or 0) < tonumber(ARGV[1])) then
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
end
return 1
