-- The usual case: nobody holds, waits or is buried here.
--
-- ARGV  5 the ask as it is written into main: owner, reason, order, client, group, reentry id and
--       capacity, a line each; 6 ttl, 7 fence floor, 8 weight, '' for all of the capacity, 9 place
--       and most waiters. An empty string means none. 10 and 11, if any, the main key and the claim
--       id of the witness: a claim that must hold, or the server has forgotten what it promised.
-- Returns what acquire.lua returns.
local floor = ARGV[7]

if ARGV[10] then
  local seen = redis.pcall('GET', ARGV[10])
  if type(seen) ~= 'string' or string.sub(seen, 1, 32) ~= ARGV[11] then
    return id .. '\nforgot'
  end
end

if ARGV[8] == '' and call('EXISTS', main, KEYS[8] or main .. ':d', KEYS[9] or main .. ':x') == 0 then
  local fence = next_number(floor ~= '' and floor or now_us_text)
  call('SET', main, id .. ' ' .. fence .. ' ' .. ARGV[5] .. '\n' .. now_text, 'PX', ARGV[6])
  return id .. '\ngranted\n' .. fence
end
