-- Who is next in line where, as is usual, no claim shares or wants to, all waiters are alive, and
-- the first of them belongs to no thread of work. Everything else the law decides.
--
-- Needs    mine: the caller is the holder.
-- Leaves   next_claim, unless none is next or it is not as usual; of that one next_place,
--          next_ticket, next_ask, next_client, next_floor, next_ends, when its lease ends, and as
--          leaving_sum and leaving_worth what summand says of the place that it leaves.
local head = mine and call('ZRANGE', queue_x, '0', '0')[1]
local oldest = head and call('ZRANGE', clients, '0', '0', 'WITHSCORES') or {}
local ends = oldest[2] and plain(oldest[2]) or ''

if #ends == #now_text and ends > now_text then
  local claim, reentry, next_ttl = string.sub(head, -32), nil, nil
  local found = call('HMGET', details, claim, '~s')
  next_ask, next_client, reentry, next_ticket, next_floor, next_ttl = string.match(found[1] or '',
    '^([^\n]*\n[^\n]*\n[^\n]*\n([^\n]*)\n[^\n]*\n([^\n]*)\n%d+)\n%d+\n%d+\n(%d+)\n(%d*)\n(%d+)$')
  if next_client and reentry == '' and not found[2] then
    if next_client ~= oldest[1] then
      ends = call('ZSCORE', clients, next_client)
      ends = ends and plain(ends)
    end
    -- An end that is no moment was not written by us: the law says so.
    next_claim = ends and #ends == #now_text and claim or nil
    local by_ttl = string.format('%.0f', now + next_ttl)
    ends = next_claim and by_ttl < ends and #by_ttl == #ends and by_ttl or ends
    next_place, next_ends = head, ends
  end
  if next_claim then
    leaving_sum, leaving_worth = summand(next_client, next_claim, next_ticket)
  end
end
