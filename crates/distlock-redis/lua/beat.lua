-- One heartbeat for all places that a client has at a key.
--
-- ARGV  3 span in ms, 4.. the claims. ARGV[1] is the first of them.
-- Returns, after that one: ms until a lease ends or -1, the ticket of the first in line or '', and
-- for each claim its ticket and how many are ahead. A ticket of '' means that this client does not
-- wait under the claim: then stand.lua knows more. With many claims nobody is counted, and ahead
-- is ''.
local COUNTED_MAX = 16
local span = number(ARGV[3])

settle()
local order = order_now() or '0'
local _, head = first(order)
local answers = reply(retry_after(), head and whole(head) or '')
local waits = false

for from = 4, #ARGV, SLICE do
  local names = {}
  for i = from, math.min(from + SLICE - 1, #ARGV) do
    names[#names + 1] = 'c:' .. client .. ':' .. ARGV[i]
  end
  local x = call('ZMSCORE', queue_x, unpack(names))
  local s = call('ZMSCORE', queue_s, unpack(names))
  for i in ipairs(names) do
    local ticket = x[i] or s[i]
    local count = ''
    if ticket and #ARGV - 3 <= COUNTED_MAX then
      count = ahead(order, x[i] and true or false, number(ticket))
    end
    waits = waits or ticket
    answers[#answers + 1] = ticket and whole(number(ticket)) or ''
    answers[#answers + 1] = count
  end
end

if waits then
  hear_client(now + span)
end
finish()
return answers
