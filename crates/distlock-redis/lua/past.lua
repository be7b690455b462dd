-- Reads entries of one key out of the journal, newest first: only those, by the milliseconds that
-- each entry has of the one before it.
--
-- KEYS  1 the stream, 2 the index, as in journal.lua.
-- ARGV  1 the key, 2 how many different milliseconds to look at, 3 those to begin with, or nothing
--       for the newest entry.
-- Returns the milliseconds to go on with, empty at the end, and the entries as XRANGE has them.
local key, steps = ARGV[1], tonumber(ARGV[2])
local ms, found = ARGV[3], {}
if ms == '' then
  local newest = redis.call('ZSCORE', KEYS[2], key)
  ms = newest and string.format('%.0f', tonumber(newest)) or ''
end
while ms ~= '' and steps > 0 do
  steps = steps - 1
  local here, prev = ms, ''
  for _, row in ipairs(redis.call('XREVRANGE', KEYS[1], here, here)) do
    local fields, own = row[2], {}
    for at = 1, #fields - 1, 2 do
      own[fields[at]] = fields[at + 1]
    end
    if own.key == key then
      found[#found + 1] = row
      prev = own.prev or ''
    end
  end
  -- Always further back: a chain that others wrote cannot go round.
  local further = string.match(prev, '^%d+$') and tonumber(prev) < tonumber(here)
  ms = further and prev or ''
end
return { ms, found }
