-- Renews exclusive holds, each by its main key alone, so that they live through the migration of a
-- slot and cost next to nothing.
--
-- KEYS  the main keys. ARGV  claim id and span in ms of each.
-- Returns, as words, the first claim id, then the fence of each, or 0 if it is not an exclusive hold
-- of its claim: then stand.lua knows more. A key of another type counts as absent.
local call, match = redis.call, string.match
local texts, answers = call('MGET', unpack(KEYS)), { ARGV[1] }
for i, main in ipairs(KEYS) do
  local id, fence = match(texts[i] or '', '^(%x+) (%d+) ')
  if id == ARGV[2 * i - 1] then
    call('PEXPIRE', main, ARGV[2 * i], 'GT') -- never shortens
    answers[i + 1] = fence
  else
    answers[i + 1] = '0'
  end
end
return table.concat(answers, ' ')
