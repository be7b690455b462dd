-- The usual case: an exclusive holder lets go and nobody waits.
--
-- ARGV  6 the fence to break ('' to release the claim), 7 ms to keep the key taken, 8 ms to bury.
-- Returns what release.lua returns.
local broken, keep, grave = ARGV[6], number(ARGV[7]), number(ARGV[8])

if broken == '' and keep == 0 and grave == 0 then
  local text = redis.pcall('GET', main)
  if type(text) == 'string' and string.sub(text, 1, 33) == id .. ' '
    and call('EXISTS', sharers, queue_x, queue_s) == 0 then
    call('DEL', main)
    return reply('held')
  end
end
