-- Takes a number from the counter that both fences and tickets come from, if one is wanted.
--
-- Needs    wanted: what it is at least, as a text, or true for the present. and_next: a second one
--          is taken, too.
-- Leaves   taken, and upto: the second one, if there is one. Both are texts; those of one length
--          compare as numbers do.
--
-- Where all keys share a counter, its life begins anew with the first number of every second. All
-- others of that second are behind the text of the second, which is what a number begins with.
taken = wanted == true and now_us_text or wanted
upto = taken
if taken then
  if and_next then
    -- The last of these ten, unless it is taken: to write a number would be slow.
    upto = string.sub(taken, 1, -2) .. '9'
    upto = upto ~= taken and upto or string.format('%.0f', taken + 1)
  end
  local last = call('SET', fence_key, upto, 'KEEPTTL', 'GET')
  local behind = last and #last == #taken and last < taken
  local second = wanted == true and time[1] or string.sub(taken, 1, -7)
  if not (behind and one_counter and last > second) then
    if last and not behind then
      taken = string.format('%.0f', math.max(number(last) + 1, number(taken)))
      upto = and_next and string.format('%.0f', taken + 1) or taken
    end
    call('SET', fence_key, upto, 'PX', one_counter and LIFE or string.match(caller, ' (%d+)'))
  end
end
