-- One lets go and another asks for the same key, in the usual case: whoever is next enters and the
-- other takes a place at the end of the line, or enters if nobody waits. Whatever is not so is left
-- alone: then each goes by itself.
--
-- ARGV  1 the claim that is released; 5 to 9 what acquire_free.lua says of the ask, which is for a
--       place without a thread of work or a fence floor; 10 the claim that asks.
-- Returns, a line each and after the released claim: nothing if nothing was done, or for the claim
-- that asks 'granted', fence | 'busy', ticket, ahead, ms until the lease ends, then the fence and the
-- ask of the one that entered, and what it has to be told if it belongs to the same client.
local asker = ARGV[10]
local text = redis.pcall('GET', main)
if type(text) ~= 'string' or string.find(text, id .. ' ', 1, true) ~= 1 then
  return id
end

local claim, ask, to, floor, ticket, ends = next_in_line(graves)
if not claim then
  if call('EXISTS', details, graves) > 0 then
    return id
  end
  local fence = next_number(now_us_text)
  call('SET', main, asker .. ' ' .. fence .. ' ' .. ARGV[5] .. '\n' .. now_text, 'PX', ARGV[6])
  return id .. '\n' .. asker .. '\ngranted\n' .. fence
end

local place, most = string.match(ARGV[9], '^(%d+) (%d+)$')
local ahead = call('ZCARD', queue_x) - 1
local one_order = ask == ARGV[5] or order_of(ask) == order_of(ARGV[5])
if claim == asker or floor ~= '' or not one_order or ahead >= number(most) then
  return id
end
-- First one joins and then the other leaves, so that the line does not end in between.
local fence, own = next_number(now_us_text, 1)
local sum, worth = summand(to, claim, ticket)
local joined, settled = join_line(asker, own, number(place), sum, worth)
if not joined then
  return id
end
leave_line(claim, to, not settled and sum, worth)
local news = tell(to, enter(claim, ask, ticket, ends, fence))
return id .. '\n' .. asker .. '\nbusy\n' .. own .. '\n' .. ahead .. '\n' .. whole(ends - now)
  .. '\n' .. fence .. '\n' .. ask .. '\n' .. news
