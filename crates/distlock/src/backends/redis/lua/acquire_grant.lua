-- It is free: granted with the number that was taken.
if taken then
  call('SET', main, id .. ' ' .. taken .. ' ' .. ARGV[3] .. '\n' .. now_text, 'PX', ARGV[4])
  return id .. '\ngranted\n' .. taken
end
