-- The journal of a namespace: what happened to its locks. It decides nothing.
--
-- KEYS  1 the stream, 2 the index: a sorted set that has, for each key with an entry, the
--       milliseconds in the id of its newest one. An entry names those of the entry before it of
--       the same key as `prev`, so that the history of a key is read without the others.

-- Writes notes and drops what is no longer kept.
--
-- ARGV  1 how many entries to keep, 2 for how many milliseconds; then for each note: its age in
--       milliseconds, its key, how many words follow, and its fields as names and values.
-- Returns the newest id.
function verbs.append(call, keys, args)
  local stream, index, now = keys[1], keys[2], tonumber(string.sub(present(call), 1, -4))
  local at, newest = 3, nil
  while at <= #args do
    local key, first, last = args[at + 1], at + 3, at + 2 + tonumber(args[at + 2])
    local before = redis.call('ZSCORE', index, key)
    newest = redis.call('XADD', stream, '*', 'at', whole(now - tonumber(args[at])),
      'prev', before and whole(tonumber(before)) or '', unpack(args, first, last))
    redis.call('ZADD', index, string.match(newest, '^%d+'), key)
    at = last + 1
  end
  -- Counted by whole nodes of the stream, which is cheap; age is a promise, so it is exact.
  redis.call('XTRIM', stream, 'MAXLEN', '~', args[1])
  redis.call('XTRIM', stream, 'MINID', whole(now - tonumber(args[2])) .. '-0')
  local oldest = redis.call('XRANGE', stream, '-', '+', 'COUNT', 1)[1]
  -- A key whose newest entry is gone has none.
  local from = oldest and '(' .. string.match(oldest[1], '^%d+') or '+inf'
  redis.call('ZREMRANGEBYSCORE', index, '-inf', from)
  redis.call('PEXPIRE', stream, args[2])
  redis.call('PEXPIRE', index, args[2])
  return newest
end

-- The entries of a key that were written in one millisecond, and the millisecond of those before.
local function entries_at(stream, key, ms, found)
  local prev = ''
  for _, row in ipairs(redis.call('XREVRANGE', stream, ms, ms)) do
    local fields, own = row[2], {}
    for at = 1, #fields - 1, 2 do
      own[fields[at]] = fields[at + 1]
    end
    if own.key == key then
      found[#found + 1] = row
      prev = own.prev or ''
    end
  end
  return prev
end

-- Reads entries of one key, newest first.
--
-- ARGV  1 the key, 2 how many different milliseconds to look at, 3 those to begin with, or nothing
--       for the newest entry.
-- Returns the milliseconds to go on with, empty at the end, and the entries as XRANGE has them.
function verbs.history(_, keys, args)
  local ms, found = args[3], {}
  if ms == '' then
    local newest = redis.call('ZSCORE', keys[2], args[1])
    ms = newest and whole(tonumber(newest)) or ''
  end
  for _ = 1, tonumber(args[2]) do
    if ms == '' then
      break
    end
    local prev = entries_at(keys[1], args[1], ms, found)
    -- Always further back: a chain that others wrote cannot go round.
    ms = string.match(prev, '^%d+$') and tonumber(prev) < tonumber(ms) and prev or ''
  end
  return { ms, found }
end
