-- The usual hand-over: an exclusive holder lets go, nobody shares or wants to, all who wait are
-- alive, and the first of them belongs to no thread of work. Whatever is not so, the law decides.
--
-- Returns what release.lua returns.
local function next_in_line()
  local head = call('ZRANGE', queue_x, 0, 0, 'WITHSCORES')
  local oldest = call('ZRANGE', clients, 0, 0, 'WITHSCORES')
  local all_live = head[1] and oldest[1] and number(oldest[2]) > now
  if all_live and call('EXISTS', sharers, queue_s) == 0 then
    local ask, to, reentry, floor = string.match(call('HGET', details, head[1]) or '',
      '^([^\n]*\n[^\n]*\n[^\n]*\n([^\n]*)\n[^\n]*\n([^\n]*)\n%d+)\n%d+\n%d+\n\n(%d*)$')
    local ends = to == oldest[1] and oldest[2] or to and call('ZSCORE', clients, to)
    return reentry == '' and ends and head[1], ask, to, floor, head[2], ends
  end
end

local function hand_over(claim, ask, to, floor, ticket, ends)
  call('ZREM', queue_x, claim)
  call('ZREM', places, 'c:' .. to .. ':' .. claim)
  -- Without places a client's heartbeat means nothing here, nor the order without a queue.
  local sum, number_ = summand(to, claim, ticket)
  if redis.pcall('HINCRBY', details, sum, -number_) ~= 0 then
    call('HDEL', details, claim)
  elseif #places_of('c:' .. to .. ':', 1) > 0 then
    call('HDEL', details, claim, sum)
  else
    call('ZREM', clients, to)
    call('HDEL', details, claim, sum, call('EXISTS', places) == 0 and '~o' or claim)
  end
  local fence = next_number(floor ~= '' and floor or now_us_text)
  call('SET', main, claim .. ' ' .. fence .. ' ' .. ask .. '\n' .. now_text, 'PXAT', ends)
  push(to, 'granted ' .. claim .. ' ' .. ticket .. ' ' .. fence)
end

if mine then
  local claim, ask, to, floor, ticket, ends = next_in_line()
  if claim then
    hand_over(claim, ask, to, floor, ticket, ends)
    return id
  end
end
