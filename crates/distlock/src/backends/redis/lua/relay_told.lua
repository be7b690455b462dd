-- What came of it.
if not next_claim then
  call('SET', main, ARGV[6] .. ' ' .. taken .. ' ' .. ARGV[3] .. '\n' .. now_text, 'PX', ARGV[4])
  return id .. '\n' .. ARGV[6] .. '\ngranted\n' .. taken
elseif not joined then
  return id
end
return id .. '\n' .. joins .. '\nbusy\n' .. upto .. '\n' .. ahead .. '\n'
  .. string.format('%.0f', next_ends - now) .. '\n' .. taken .. '\n' .. next_ask .. '\n' .. news
