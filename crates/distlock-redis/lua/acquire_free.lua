-- The usual case: nobody holds, waits or is buried here.
--
-- ARGV  2 the ask as it is written into main: owner, reason, order, client, group, reentry id and
--       capacity, a line each. What follows may be missing: 3 ttl, 4 place and most waiters, or an
--       empty string for those who do not wait, 5 the caller as in texts.lua, 6 weight if it is not
--       all of the capacity, 7 fence floor, or an empty string for none. 8 and 9 the main key and
--       the claim id of the witness: a claim that must hold, or the server has forgotten what it
--       promised; both empty for none. 10 the attempt that asks and its tombstone, see acquire.lua:
--       then the weight is always said, and the law decides.
-- Leaves ask, ttl, place, most, caller, floor, and wanted if it is so.
ask, ttl, place, most, caller = ARGV[2], TTL, PLACE, MOST, nil
local weight = ''
floor = ''

if ARGV[3] then
  ttl, caller = ARGV[3], ARGV[5]
  if ARGV[4] then
    place, most = string.match(ARGV[4], '^(%d+) (%d+)$')
  end
  if caller then
    weight, floor = ARGV[6] or '', ARGV[7] or ''
    caller = caller ~= '' and caller or nil
  end
  if ARGV[8] and ARGV[8] ~= '' then
    local seen = redis.pcall('GET', ARGV[8])
    if type(seen) ~= 'string' or string.sub(seen, 1, 32) ~= ARGV[9] then
      return id .. '\nforgot'
    end
  end
end

if weight == '' and call('EXISTS', main, KEYS[8] or main .. ':d') == 0 then
  wanted = floor == '' or floor
end
