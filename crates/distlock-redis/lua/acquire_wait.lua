-- Says how long the wait is. Whoever has come for this moment only may be in line from before.
--
-- Returns what acquire.lua returns.
if joined and more == '' then
  call('APPEND', main, '+')
end
if joined
  or (left >= 0 and not place and (ahead == 0 or call('HEXISTS', details, id) == 0)) then
  return id .. '\nbusy\n' .. (taken or '') .. '\n' .. ahead .. '\n' .. left .. '\n' .. owner
    .. '\n' .. reason .. '\n' .. fence .. '\n' .. held_capacity .. '\n1\n' .. group .. '\n'
    .. now - string.sub(since, 1, -4) .. '\n' .. left
end
