-- Who is next in line where, as is usual, nobody shares or wants to, all who wait are alive, and
-- the first of them belongs to no thread of work. Whatever is not so, the law decides.
--
-- Needs    mine: the caller is the one who holds. nobody_buried: that must not be, either. ask and
--          its stem, if there is one: the next may be just like it.
-- Leaves   next_claim, unless nobody is next or it is not as usual; of that one next_place,
--          next_ticket, next_ask, next_client, next_floor, next_ends, when its lease ends, and as
--          leaving_sum and leaving_worth what summand says of the place that it leaves.
local head = mine and call('ZRANGE', queue_x, '0', '0')[1]
local oldest = head and call('ZRANGE', clients, '0', '0', 'WITHSCORES') or {}
local ends = oldest[2] and plain(oldest[2]) or ''

if #ends == #now_text and ends > now_text then
  local claim = string.sub(head, -32)
  local found = call('HMGET', details, claim, '~s', nobody_buried and '~x' or '~s')
  local text, reentry = found[1] or '', ''
  -- Behind the stem of one that is just like it are 13 digits and 16 digits, a line each.
  if stem and string.find(text, stem, 1, true) == 1 and #text == #stem + 31
    and string.sub(text, -1) == '\n' then
    next_ask, next_client, next_ticket, next_floor = ask, client, string.sub(text, -17, -2), ''
  else
    next_ask, next_client, reentry, next_ticket, next_floor = string.match(text,
      '^([^\n]*\n[^\n]*\n[^\n]*\n([^\n]*)\n[^\n]*\n([^\n]*)\n%d+)\n%d+\n%d+\n(%d+)\n(%d*)$')
  end
  if next_client and reentry == '' and not (found[2] or found[3]) then
    if next_client ~= oldest[1] then
      ends = call('ZSCORE', clients, next_client)
      ends = ends and plain(ends)
    end
    next_claim, next_place, next_ends = ends and claim, head, ends
  end
  if next_claim then
    leaving_sum, leaving_worth = summand(next_client, next_claim, next_ticket)
  end
end
