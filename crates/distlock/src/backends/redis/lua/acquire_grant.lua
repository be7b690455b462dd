-- It is free: granted with the number that was taken.
if taken then
  call('SET', main, id .. ' ' .. taken .. ' ' .. ask .. '\n' .. now_us_text, 'PX', ttl)
  return id .. '\ngranted\n' .. taken
end
