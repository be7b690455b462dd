-- One heartbeat for places of a client at a key, in groups: tells of each whether it is as the client
-- believes.
--
-- ARGV  3 span in ms; then of each group its number, how many places it has and the sum of what
--       they are worth, as the client believes (see texts.lua).
-- Returns, after the claim id: ms until a lease ends or -1, the ticket of the first in line or '',
-- and a 1 for each group that is as believed, in one text. Of a group with a 0 beat.lua tells more.
--
-- Equal sums mean equal places but for one chance in 2^51. The counts are there for keys of which
-- a server that is short of memory, or an operator, has removed one and left the others.
local function count(prefix)
  return call('ZLEXCOUNT', places, '[' .. prefix, '[' .. prefix .. '\255')
end

settle()
local sums, told, believed = {}, {}, 0
for i = 4, #ARGV, 3 do
  sums[#sums + 1] = '~' .. client .. ':' .. ARGV[i]
end
for i, sum in ipairs(call('HMGET', details, unpack(sums))) do
  local same = sum == ARGV[3 + 3 * i]
  told[i] = same and '1' or '0'
  believed = believed + (same and number(ARGV[2 + 3 * i]) or 0)
end
local there = believed > 0 and believed <= count('c:' .. client .. ':')
  and count('c:') == call('ZCARD', queue_x) + call('ZCARD', queue_s)
  and call('ZSCORE', clients, client)
if there then
  hear_client(now + number(ARGV[3]))
end
finish()
local _, head = first(order_now())
return reply(retry_after(), head and whole(head) or '',
  there and table.concat(told) or string.rep('0', #told))
