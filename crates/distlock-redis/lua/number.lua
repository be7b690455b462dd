-- Takes a number from the counter that both fences and tickets come from, if one is wanted.
--
-- Needs    wanted: what it is at least, as a text, or true for the present.
-- Leaves   taken, a text; numbers of one length compare as numbers do. Nothing at the end of the
--          counter: then the law refuses.
--
-- Where all keys share a counter, its life begins anew with the first number of every second. All
-- others of that second are behind the text of the second, which is what a number begins with.
taken = wanted == true and now_us_text or wanted
if taken then
  local last = call('SET', fence_key, taken, 'KEEPTTL', 'GET')
  local behind = last and #last == #taken and last < taken
  local second = wanted == true and time[1] or string.sub(taken, 1, -7)
  if not (behind and one_counter and last > second) then
    if last and not behind then
      -- What is no number was not written by us and counts as nothing.
      local first = math.max((number(last) or 0) + 1, number(taken))
      taken = first <= 9007199254740991 and string.format('%.0f', first) or nil
    end
    call('SET', fence_key, taken or last, 'PX',
      one_counter and LIFE or string.match(caller, ' (%d+)'))
  end
end
