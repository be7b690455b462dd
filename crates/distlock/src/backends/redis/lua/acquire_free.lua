-- The usual case: nobody holds, waits or is buried here.
--
-- ARGV  3 the ask as it is written into main: owner, reason, order, client, group, reentry id and
--       capacity, a line each; 4 ttl, 5 place and most waiters. What follows may be missing:
--       6 weight if it is not all of the capacity, 7 fence floor. An empty string means none. 8 and
--       9 the main key and the claim id of the witness: a claim that must hold, or the server has
--       forgotten what it promised.
-- Leaves floor, and wanted if it is so.
local weight = ARGV[6] or ''
floor = ARGV[7] or ''

if ARGV[8] then
  local seen = redis.pcall('GET', ARGV[8])
  if type(seen) ~= 'string' or string.sub(seen, 1, 32) ~= ARGV[9] then
    return id .. '\nforgot'
  end
end

if weight == '' and call('EXISTS', main, KEYS[8] or main .. ':d') == 0 then
  wanted = floor == '' or floor
end
