-- How things are written, and what is made of what others wrote. A text that is not ours is nil.
--
-- record  '<fence> <owner>', then reason, order, client, group, reentry id, capacity and the moment
--         since when in microseconds, a line each. Then, if there is more to say: the weight if it
--         is not the whole capacity; of a waiter the ttl in ms that it asks for and the floor of
--         its fence; the ids of attempts. The fence of a waiter is its ticket.
-- main    '<claim> <record>' of an exclusive holder. The first line is for people and for foreign
--         clients. Without a '+' at the end the key has no side keys. Or, as long as claims
--         share, '~shared <group>\n<order>'. Anything else was written by a foreign client and
--         holds exclusively. A claim that was released but keeps the key is called 'kept:<claim>'.
--
-- Moments are milliseconds of the server's clock. Labels contain no line breaks. Fences, tickets,
-- capacities and the like are handled as texts, which are exact, and cost less to write.

local NUMBER_MAX, CAPACITY_MAX = 9007199254740991, 4294967295
local ASK = '^([^\n]*)\n([^\n]*)\n([012])\n([^\n]*)\n([^\n]*)\n([^\n]*)\n(%d+)$'
local RECORD = '^(%d+) ([^\n]*)\n([^\n]*)\n([012])\n([^\n]*)\n([^\n]*)\n([^\n]*)\n(%d+)'
  .. '\n(%d%d%d%d+)\n?(%d*)\n?(%d*)\n?(%d*)\n?([%x,]*)%+?$'

-- '..' and tostring print 14 digits only; numbers here have up to 16.
local function whole(number)
  return string.format('%.0f', number)
end

-- A score of a sorted set. One beyond all moments was written by others and ends the verb: nothing
-- can be kept until then.
local function moment(key, score)
  local number = tonumber(score)
  if number and number > NUMBER_MAX then
    error(redis.error_reply('WRONGTYPE ' .. key .. ' has a score that no lock writes: delete it'))
  end
  return number
end

-- An argument that may be missing.
local function given(text)
  return text and text ~= '' and text or nil
end

-- A score as a text of digits. Servers from 7.2 on write one with many zeros with an exponent.
local function digits(score)
  return score and string.find(score, 'e', 1, true) and whole(tonumber(score)) or score
end

-- A claim as it is asked for.
local function decode_ask(id, text, weight, floor, ttl, attempts)
  local owner, reason, order, client, group, reentry, capacity = string.match(text, ASK)
  return {
    id = id, owner = owner, reason = reason, order = order, client = client, group = group,
    reentry = reentry, capacity = capacity, weight = weight or capacity, exclusive = not weight,
    floor = floor or '', ttl = ttl, attempts = attempts or '', fence = false, since = false,
  }
end

-- The record that begins at `from`, or at the beginning.
local function decode(id, text, from)
  local fence, owner, reason, order, client, group, reentry, capacity, since, weight, ttl, floor,
    attempts = string.match(text, RECORD, from)
  if not fence or #fence > 16 or tonumber(fence) > NUMBER_MAX or #since > 16 or #ttl > 16
    or tonumber(capacity) > CAPACITY_MAX or (tonumber(weight) or 0) > tonumber(capacity) then
    return nil
  end
  local exclusive = weight == ''
  return {
    id = id, owner = owner, reason = reason, order = order, client = client, group = group,
    reentry = reentry, capacity = capacity, weight = exclusive and capacity or weight,
    exclusive = exclusive, floor = floor, ttl = ttl, attempts = attempts, fence = fence,
    since = since, kind = false, ends = false, marked = false,
  }
end

local function encode(h)
  local text = h.fence .. ' ' .. h.owner .. '\n' .. h.reason .. '\n' .. h.order .. '\n' .. h.client
    .. '\n' .. h.group .. '\n' .. h.reentry .. '\n' .. h.capacity .. '\n' .. h.since
  local weight = h.exclusive and '' or h.weight
  if h.floor ~= '' or h.attempts ~= '' then
    return text .. '\n' .. weight .. '\n' .. h.ttl .. '\n' .. h.floor .. '\n' .. h.attempts
  elseif h.ttl ~= '' then
    return text .. '\n' .. weight .. '\n' .. h.ttl
  end
  return weight == '' and text or text .. '\n' .. weight
end

local function decode_main(text)
  local id = string.match(text, '^%x+') or string.match(text, '^kept:%x+') or ''
  local is_claim = (#id == 32 or #id == 37) and string.byte(text, #id + 1) == 32
  local h = is_claim and decode(id, text, #id + 2)
  return h and h.exclusive and h or nil
end

local function encode_main(h)
  return h.id .. ' ' .. encode(h) .. '+'
end

local function decode_shared(text)
  return string.match(text, '^~shared ([^\n]*)\n([012])$')
end

local function encode_shared(held)
  return '~shared ' .. held.group .. '\n' .. held.order
end

local function details_of(lock, claim)
  local text = redis.call('HGET', lock.details, claim)
  return text and decode(claim, text) or nil
end

local function place_name(client, claim)
  return 'c:' .. client .. ':' .. claim
end

local function claim_of(place)
  return string.sub(place, -32)
end

-- The places of a client that were taken within one second are summed up in one digest, so that
-- newcomers change the last one only and those who are admitted mostly the first. What a place adds
-- is as good as random by its claim, and another number under another ticket. It stays below 2^52.
--
-- Returns the field of the digest and the number.
local function place_hash(client, claim, ticket)
  local random = tonumber(string.sub(claim, -13), 16) or 0
  return '~' .. client .. ':' .. string.sub(ticket, 1, -7),
    random - 2251799813685248 + tonumber(string.sub(ticket, -12))
end

-- Every answer begins with the claim it is for, so that an answer to another question is never
-- mistaken for one's own. The lines of one text cost less than an array.
local function reply(...)
  return table.concat({ ... }, '\n')
end

-- How long ago that was, in ms. Numbers of up to 14 digits may be written as they are.
local function ago(lock, since)
  return math.max(lock.now - tonumber(string.sub(since, 1, -4)), 0)
end

-- What is shown of a holder: owner, reason, fence, weight, 1 if exclusive, group, held for ms, ms
-- left or -1, capacity.
local function show_holder(lock, h, ends)
  return reply(h.owner, h.reason, h.fence, h.weight, h.exclusive and 1 or 0, h.group,
    ago(lock, h.since), ends < math.huge and ends - lock.now or -1, h.capacity)
end
