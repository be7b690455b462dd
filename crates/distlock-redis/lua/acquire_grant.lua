-- It is free: granted with the number that was taken. With GET the answer of SET is nothing, which
-- costs less than a status.
if taken then
  call('SET', main, id .. ' ' .. taken .. ' ' .. ask .. '\n' .. now_us_text, 'PX', ttl, 'GET')
  return id .. '\ngranted\n' .. taken
end
