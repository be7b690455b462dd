-- Renews exclusive holds, each by its main key alone, so that they live through the migration of a
-- slot and cost next to nothing.
--
-- KEYS  the main keys. ARGV  claim id and span in ms of each.
-- Returns for each its claim id and its fence, or '' if it is not an exclusive hold of this claim:
-- then stand.lua knows more. A key of another type counts as absent.
local call, find = redis.call, string.find
local texts, answers = call('MGET', unpack(KEYS)), {}
for i, main in ipairs(KEYS) do
  local text, id, fence = texts[i], ARGV[2 * i - 1], ''
  if text and find(text, id .. ' ', 1, true) == 1 then
    fence = string.sub(text, 34, find(text, ' ', 34, true) - 1)
    call('PEXPIRE', main, ARGV[2 * i], 'GT') -- never shortens
  end
  answers[2 * i - 1], answers[2 * i] = id, fence
end
return answers
