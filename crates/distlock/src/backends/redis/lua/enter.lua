-- Whoever is next in line enters. If somebody else was to join the line, then only after that, so
-- that it does not end in between.
--
-- Needs    what next.lua and join.lua leave; taken: the fence.
-- Leaves   news: what the one who entered has to be told if it belongs to the client that called,
--          or ''. Not on a cluster, where a call may be made again out of sight, and the answer is
--          then another one.
news = ''
if next_claim and (joined or not joins) then
  call('ZREM', queue_x, next_place)
  call('ZREM', places, next_place)
  -- Without places a client's heartbeat means nothing here, nor the order without a queue.
  if settled or redis.pcall('HINCRBY', details, leaving_sum, -leaving_worth) ~= 0 then
    call('HDEL', details, next_claim)
  else
    local prefix = '[c:' .. next_client .. ':'
    local order = leaving_sum
    if call('ZLEXCOUNT', places, prefix, prefix .. '\255') == 0 then
      call('ZREM', clients, next_client)
      order = call('EXISTS', places) == 0 and '~o' or leaving_sum
    end
    call('HDEL', details, next_claim, leaving_sum, order)
  end
  call('SET', main, next_claim .. ' ' .. taken .. ' ' .. next_ask .. '\n' .. now_us_text .. '+',
    'PXAT', next_ends)
  news = 'granted ' .. next_claim .. ' ' .. next_ticket .. ' ' .. taken
  if next_client ~= client or tells_by == 'S' then
    local channel = one_counter and string.sub(fence_key, 1, -6) .. 'push:'
      or string.match(caller, '^%S+ %d+ (.*)$')
    -- As push does in law.lua, which is not there yet. Denied or not, the grant stands.
    if tells_by ~= '-' then
      redis.pcall(tells_by == 'S' and 'SPUBLISH' or 'PUBLISH', channel .. next_client, news)
    end
    news = ''
  end
end
