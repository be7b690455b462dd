-- Names for what every script gets.
--
-- KEYS  1 main, 2 fence, 3 sharers, 4 exclusive queue, 5 shared queue, 6 clients, 7 places,
--       8 details, 9 graves. All carry one hash tag.
-- ARGV  1 claim id, 2 client id, 3 push verb ('' for none), 4 push channel without the client id,
--       5 how long the fence counter outlives everything, in ms. The rest is each script's own.
--
-- Time is read once, so that all decisions of one script are made at one moment. Moments are
-- milliseconds of the server's clock; fences and tickets start from its microseconds.
local main, fence_key, sharers, queue_x, queue_s = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local clients, places, details, graves = KEYS[6], KEYS[7], KEYS[8], KEYS[9]
local id, client, push_verb, push_channel = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local call, number, max = redis.call, tonumber, math.max
local time = call('TIME')
local now_us = number(time[1]) * 1000000 + number(time[2])
local now = math.floor(now_us / 1000)

-- '..' and tostring print 14 digits only; fences have up to 16.
local function whole(n)
  return string.format('%.0f', n)
end

-- Every answer begins with the claim it is for, so that an answer to somebody else's question is
-- never mistaken for one's own.
local function reply(...)
  return { id, ... }
end

-- The last number given out: fences and tickets come from one counter.
local counter

local function mint(at_least)
  counter = max((counter or number(call('GET', fence_key) or 0)) + 1, at_least)
  return counter
end

local function keep_counter(span)
  if counter then
    call('SET', fence_key, whole(counter), 'PX', whole(number(ARGV[5]) + span))
  end
end

-- The main key of an exclusive holder. Its first line is for people and foreign clients; the rest
-- is what the law needs to know. Labels contain no line breaks.
local function exclusive_text(h)
  return table.concat({
    h.id .. ' ' .. whole(h.fence) .. ' ' .. h.owner,
    h.reason, h.order, h.client, h.group, h.reentry, whole(h.since), whole(h.capacity),
  }, '\n')
end
