-- The first waiter in line enters.
--
-- Needs    what next.lua leaves; taken: the fence.
-- Returns  the claim id of the holder that was released, if a waiter entered.
if next_claim and taken then
  -- In this sequence: nobody has looked yet whether places is of another type.
  call('ZREM', places, next_place)
  call('ZREM', queue_x, next_place)
  -- Without places a client's heartbeat means nothing here.
  if redis.pcall('HINCRBY', details, leaving_sum, -leaving_worth) ~= 0 then
    call('HDEL', details, next_claim)
  else
    local prefix = '[c:' .. next_client .. ':'
    if call('ZLEXCOUNT', places, prefix, prefix .. '\255') == 0 then
      call('ZREM', clients, next_client)
    end
    call('HDEL', details, next_claim, leaving_sum)
  end
  call('SET', main, next_claim .. ' ' .. taken .. ' ' .. next_ask .. '\n' .. now_us_text .. '+',
    'PXAT', next_ends)
  -- As push does in law.lua, which is not there yet. Denied or not, the grant stands.
  if tells_by ~= '-' then
    local channel = one_counter and string.sub(fence_key, 1, -6) .. 'push:'
      or string.match(caller, '^%S+ %d+ (.*)$')
    redis.pcall(tells_by == 'S' and 'SPUBLISH' or 'PUBLISH', channel .. next_client,
      'granted ' .. next_claim .. ' ' .. next_ticket .. ' ' .. taken)
  end
  return id
end
