-- One lets go and another asks for the same key, in the usual case: whoever is next enters and the
-- other takes a place at the end of the line, or enters if nobody waits. Whatever is not so is left
-- alone: then each goes by itself.
--
-- ARGV  1 the claim that is released, 2 the claim that asks; 3 to 6 what acquire_free.lua has as 2
--       to 5, of an ask for a place without a thread of work or a fence floor.
-- Returns, a line each and after the released claim: nothing if nothing was done, or for the claim
-- that asks 'granted', fence | 'busy', ticket, ahead, the present, the end of the lease, then the
-- fence and the ask of the one that entered, and what it has to be told if it belongs to the same
-- client.
ask, ttl, place, most, caller = ARGV[3], ARGV[4] or TTL, PLACE, MOST, ARGV[6]
if ARGV[5] then
  place, most = string.match(ARGV[5], '^(%d+) (%d+)$')
end
local text = redis.pcall('GET', main)
mine = type(text) == 'string' and string.find(text, id, 1, true) == 1
if not mine then
  return id
end
nobody_buried, floor = true, ''
