-- The present.
--
-- Time is read once, so that all decisions of one script are made at one moment. Moments are
-- milliseconds of the server's clock; fences and tickets start from its microseconds. As texts they
-- are exact and quick; as numbers they are exact below 2^53.
local number = tonumber
local time = call('TIME')
local now_us_text = #time[2] == 6 and time[1] .. time[2]
  or string.format('%s%06d', time[1], time[2])
