-- The usual case: an exclusive holder lets go and nobody waits; or there is nothing to let go of.
--
-- ARGV  3 nothing for a plain release, or the fence to break ('-' to release the claim), ms to keep
--       the key taken and ms to bury. 4 the attempt for the claim that is given up, and its
--       tombstone; nothing if it is the claim.
-- Returns what release.lua returns. Leaves mine.
local how, find = ARGV[3], string.find
local text = not how and redis.pcall('GET', main)
mine = type(text) == 'string' and find(text, id, 1, true) == 1
local alone = mine and not find(text, '+', -1, true)

if alone or (not how and type(text) ~= 'table'
  and call('EXISTS', KEYS[8] or main .. ':d') == 0) then
  if mine then
    call('DEL', main)
    return id
  end
  return { id, 'gone' }
end
