-- How holders and waiters are written down. Labels contain no line breaks.
--
-- main     '<claim> <fence> <owner>', then reason, order, client, group, reentry id, capacity and
--          the moment since when, in microseconds, a line each. The first line is for people and
--          foreign clients. A '+' at the end says that there may be claims in details; without it
--          there are none.
-- details  owner, reason, order, client, group, reentry id, capacity, weight, since, the fence or,
--          of a waiter, the ticket, the floor of the fence, and the ttl in ms that a waiter asks
--          for. If the claim has attempts, a line more with their ids, a comma between two.
-- caller   'P', 'S' or '-' for PUBLISH, SPUBLISH or nothing by which clients are told, right behind
--          it the client id. Where keys do not share a counter, then for how many ms it lives on,
--          and the channels without the client id; otherwise those are called after the counter.
--          There, who asks and tells by PUBLISH need not say so: the ask names the client. Nor does
--          who lets go and knows of nobody who waits: then every client is told by PUBLISH.
--
-- Leaves   names for the keys; client and tells_by of the caller; of an ask its stem, which is what
--          its details begin with; the present in milliseconds.
local queue_x, clients, places, details = KEYS[4], KEYS[6], KEYS[7], KEYS[8]
if not details then
  queue_x, clients, places, details = main .. ':qx', main .. ':c', main .. ':p', main .. ':d'
end
local client, tells_by = caller and string.sub(caller, 2, 33), 'P'
if caller then
  tells_by = string.sub(caller, 1, 1)
end
fence_key = fence_key or string.match(main, '^(.*):{') .. ':fence' -- no '{' is in a key
if ask then
  -- Most asks end like this, behind the client: no group, no thread of work, one at a time.
  local plainly = string.sub(ask, -4) == '\n\n\n1'
  stem = ask .. '\n' .. (plainly and '1' or string.match(ask, '%d+$', -10)) .. '\n'
  client = client or plainly and string.sub(ask, -36, -5)
    or string.match(ask, '^[^\n]*\n[^\n]*\n[^\n]*\n([^\n]*)')
end
local now_text = string.sub(now_us_text, 1, -4) -- '..' writes numbers as exactly as this one is
local now = now_text + 0 -- a text is read once by this, and twice by tonumber
local SLACK = 60000

-- The places of a client that were taken within one second are summed up under one name. So
-- newcomers change the last sum only and those who enter mostly the first. What a place adds is as
-- good as random by the claim, and another number under another ticket, which is a text.
--
-- Returns the name and the number, which is below 2^52 so that the server writes it as it is.
local function summand(of, claim, ticket)
  local second = string.sub(ticket, 1, -7)
  return '~' .. of .. ':' .. second,
    (tonumber(string.sub(claim, -13), 16) or 0) - 2251799813685248 + string.sub(ticket, -12), second
end

-- A score as a whole number. Servers from 7.2 on write one with many zeros with an exponent.
local function plain(score)
  return string.find(score, 'e', 1, true) and string.format('%.0f', score) or score
end

-- The thread of work that an ask belongs to.
local function reentry_of(ask)
  return string.match(ask, '^[^\n]*\n[^\n]*\n[^\n]*\n[^\n]*\n[^\n]*\n([^\n]*)\n')
end
