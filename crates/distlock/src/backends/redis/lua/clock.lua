-- The present, and the numbers that come from it.
--
-- Time is read once, so that all decisions of one script are made at one moment. Moments are
-- milliseconds of the server's clock; fences and tickets start from its microseconds. As texts they
-- are exact and quick; as numbers they are exact below 2^53.
local number = tonumber
local time = call('TIME')
local now_us_text = string.format('%s%06d', time[1], time[2])
local now_text = string.sub(now_us_text, 1, -4)

-- '..' and tostring print 14 digits only; fences have up to 16.
local function whole(n)
  return string.format('%.0f', n)
end

-- The next number of the counter from which both fences and tickets come, written down at once. All
-- of these are texts; those of one length compare as numbers do.
local function next_number(at_least)
  local last = call('SET', fence_key, at_least, 'PX', ARGV[4], 'GET')
  if last and not (#last == #at_least and last < at_least) then
    at_least = whole(math.max(number(last) + 1, number(at_least)))
    call('SET', fence_key, at_least, 'PX', ARGV[4])
  end
  return at_least
end
