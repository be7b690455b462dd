-- The present, and the numbers that come from it.
--
-- Time is read once, so that all decisions of one script are made at one moment. Moments are
-- milliseconds of the server's clock; fences and tickets start from its microseconds. As texts they
-- are exact and quick; as numbers they are exact below 2^53.
--
-- Needs call, fence_key, fence_life and one_counter of the file before it.
local number = tonumber
local time = call('TIME')
local now_us_text = #time[2] == 6 and time[1] .. time[2]
  or string.format('%s%06d', time[1], time[2])
local now_text = string.sub(now_us_text, 1, -4)

-- '..' and tostring print 14 digits only; fences have up to 16.
local function whole(n)
  return string.format('%.0f', n)
end

-- The next number of the counter from which both fences and tickets come, and the one that is `more`
-- beyond it, up to which all are taken; written down at once. All of these are texts; those of one
-- length compare as numbers do. Where all keys share a counter, its life begins anew only when the
-- seventh digit has changed, which it does every 1000 seconds.
local function next_number(at_least, more)
  local upto = more and whole(at_least + more) or at_least
  local last = call('SET', fence_key, upto, 'KEEPTTL', 'GET')
  local behind = last and #last == #at_least and last < at_least
  if behind and one_counter and string.byte(last, 7) == string.byte(at_least, 7) then
    return at_least, upto
  elseif last and not behind then
    at_least = whole(math.max(number(last) + 1, number(at_least)))
    upto = more and whole(at_least + more) or at_least
  end
  call('SET', fence_key, upto, 'PX', fence_life)
  return at_least, upto
end
