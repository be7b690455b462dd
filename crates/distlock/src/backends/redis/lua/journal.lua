-- Writes notes into the journal of a namespace and drops what is no longer kept.
--
-- KEYS  1 the stream.
-- ARGV  1 how many entries to keep, 2 for how many milliseconds; then for each note: its age in
--       milliseconds, how many words follow, and its fields as names and values.
-- Returns the journal's newest id.
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local at, newest = 3, nil
while at <= #ARGV do
  local happened = string.format('%.0f', now - tonumber(ARGV[at]))
  local first, last = at + 2, at + 1 + tonumber(ARGV[at + 1])
  newest = redis.call('XADD', KEYS[1], '*', 'at', happened, unpack(ARGV, first, last))
  at = last + 1
end
-- Counted by whole nodes of the stream, which is cheap; age is a promise, so it is exact.
redis.call('XTRIM', KEYS[1], 'MAXLEN', '~', ARGV[1])
redis.call('XTRIM', KEYS[1], 'MINID', string.format('%.0f-0', now - tonumber(ARGV[2])))
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return newest
