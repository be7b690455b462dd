-- What came of it.
if not next_claim then
  call('SET', main, ARGV[2] .. ' ' .. taken .. ' ' .. ask .. '\n' .. now_us_text, 'PX', ttl)
  return id .. '\n' .. ARGV[2] .. '\ngranted\n' .. taken
elseif not joined then
  return id
end
return id .. '\n' .. joins .. '\nbusy\n' .. upto .. '\n' .. ahead .. '\n'
  .. now_text .. '\n' .. next_ends .. '\n' .. taken .. '\n' .. next_ask .. '\n' .. news
