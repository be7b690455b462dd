-- Who is next in line where, as is usual, nobody shares or wants to, all who wait are alive, and
-- the first of them belongs to no thread of work. Whatever is not so, the law decides.
--
-- Needs    mine: the caller is the one who holds. nobody_buried: that must not be, either. ask, if
--          there is one: the next may be just like it.
-- Leaves   next_claim, unless nobody is next or it is not as usual; of that one next_ticket,
--          next_ask, next_client, next_floor, next_ends, when its lease ends, and as leaving_sum
--          and leaving_worth what summand says of the place that it leaves.
stem = ask and stem_of(ask)
local head = mine and call('ZRANGE', queue_x, 0, 0, 'WITHSCORES') or {}
local oldest = head[1] and call('ZRANGE', clients, 0, 0, 'WITHSCORES') or {}

if oldest[1] and number(oldest[2]) > now then
  local found = call('HMGET', details, head[1], '~s', nobody_buried and '~x' or '~s')
  local text, reentry = found[1] or '', ''
  if stem and string.find(text, stem, 1, true) == 1 and string.sub(text, -2) == '\n\n' then
    next_ask, next_client, next_floor = ask, client, ''
  else
    next_ask, next_client, reentry, next_floor = string.match(text,
      '^([^\n]*\n[^\n]*\n[^\n]*\n([^\n]*)\n[^\n]*\n([^\n]*)\n%d+)\n%d+\n%d+\n\n(%d*)$')
  end
  if next_client and reentry == '' and not (found[2] or found[3]) then
    next_ends = next_client == oldest[1] and oldest[2] or call('ZSCORE', clients, next_client)
  end
  if next_ends then
    next_claim, next_ticket, next_ends = head[1], plain(head[2]), plain(next_ends)
    leaving_sum, leaving_worth = summand(next_client, next_claim, next_ticket)
  end
end
