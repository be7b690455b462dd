-- The usual case: an exclusive holder lets go and nobody waits.
--
-- ARGV  5 '' for a plain release, or the fence to break ('-' to release the claim), ms to keep the
--       key taken and ms to bury.
-- Returns what release.lua returns.
local text = ARGV[5] == '' and redis.pcall('GET', main)
local mine = type(text) == 'string' and string.find(text, id .. ' ', 1, true) == 1

if mine and call('EXISTS', details) == 0 then
  call('DEL', main)
  return id
end
