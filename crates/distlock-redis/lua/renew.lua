-- Renews exclusive holds, each by its main key alone, so that they live through the migration of a
-- slot and cost next to nothing.
--
-- KEYS  the main keys. ARGV  the span of all in ms, then the claim id of each.
-- Returns, as words, the first claim id, then the fence of each, or 0 if it is not an exclusive hold
-- of its claim: then stand.lua knows more. A key of another type counts as absent.
local call, find, match, keys, args = redis.call, string.find, string.match, KEYS, ARGV
local texts, span, answers = call('MGET', unpack(keys)), args[1], { args[2] }
for i = 1, #keys do
  local text = texts[i]
  local fence = text and find(text, args[i + 1], 1, true) == 1 and match(text, '^ (%d+) ', 33)
  if fence then
    call('PEXPIRE', keys[i], span, 'GT') -- never shortens
  end
  answers[i + 1] = fence or '0'
end
return table.concat(answers, ' ')
