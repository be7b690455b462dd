-- Writes notes into the journal of a namespace and drops what is no longer kept.
--
-- KEYS  1 the stream, 2 the index: a sorted set that has, for each key with an entry, the
--       milliseconds in the id of its newest one. An entry names those of the entry before it of
--       the same key as `prev`, so that the past of a key is read without the others.
-- ARGV  1 how many entries to keep, 2 for how many milliseconds; then for each note: its age in
--       milliseconds, its key, how many words follow, and its fields as names and values.
-- Returns the journal's newest id.
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local at, newest = 3, nil
while at <= #ARGV do
  local happened = string.format('%.0f', now - tonumber(ARGV[at]))
  local key, first, last = ARGV[at + 1], at + 3, at + 2 + tonumber(ARGV[at + 2])
  local before = redis.call('ZSCORE', KEYS[2], key)
  local prev = before and string.format('%.0f', tonumber(before)) or ''
  newest = redis.call('XADD', KEYS[1], '*', 'at', happened, 'prev', prev,
    unpack(ARGV, first, last))
  redis.call('ZADD', KEYS[2], string.match(newest, '^%d+'), key)
  at = last + 1
end
-- Counted by whole nodes of the stream, which is cheap; age is a promise, so it is exact.
redis.call('XTRIM', KEYS[1], 'MAXLEN', '~', ARGV[1])
redis.call('XTRIM', KEYS[1], 'MINID', string.format('%.0f-0', now - tonumber(ARGV[2])))
local oldest = redis.call('XRANGE', KEYS[1], '-', '+', 'COUNT', 1)[1]
-- A key whose newest entry is gone has none.
local kept_from = oldest and '(' .. string.match(oldest[1], '^%d+') or '+inf'
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', kept_from)
redis.call('PEXPIRE', KEYS[1], ARGV[2])
redis.call('PEXPIRE', KEYS[2], ARGV[2])
return newest
