-- Renews exclusive holds, each by its main key alone, so that they live through the migration of a
-- slot and cost next to nothing.
--
-- KEYS  the main keys. ARGV  claim id and span in ms of each.
-- Returns for each its claim id and its fence, or '' if it is not an exclusive hold of this claim:
-- then stand.lua knows more.
local answers = {}
for i, main in ipairs(KEYS) do
  local id, span = ARGV[2 * i - 1], tonumber(ARGV[2 * i])
  local text = redis.pcall('GET', main)
  local fence = type(text) == 'string' and string.match(text, '^' .. id .. ' (%d+) ')
  if fence and redis.call('PTTL', main) < span then
    redis.call('PEXPIRE', main, string.format('%.0f', span))
  end
  answers[2 * i - 1], answers[2 * i] = id, fence or ''
end
return answers
