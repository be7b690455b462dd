-- Renews exclusive holds, each by its main key alone, so that they live through the migration of a
-- slot and cost next to nothing.
--
-- KEYS  the main keys. ARGV  claim id and span in ms of each.
-- Returns, as words, the first claim id, then the fence of each, or 0 if it is not an exclusive hold
-- of its claim: then stand.lua knows more. A key of another type counts as absent.
local call, match, sub, keys, args = redis.call, string.match, string.sub, KEYS, ARGV
local texts, answers = call('MGET', unpack(keys)), { args[1] }
for i = 1, #keys do
  local text = texts[i]
  local fence = text and sub(text, 1, 32) == args[2 * i - 1] and match(text, '^ (%d+) ', 33)
  if fence then
    call('PEXPIRE', keys[i], args[2 * i], 'GT') -- never shortens
  end
  answers[i + 1] = fence or '0'
end
return table.concat(answers, ' ')
