-- Letting the next one in where, as is usual, nobody shares or wants to, all who wait are alive, and
-- the first of them belongs to no thread of work. Whatever is not so, the law decides.

-- Who is next: claim, ask, client, fence floor, ticket, and when the lease ends. Nobody if it is not
-- as usual, or if a key is there that must not be.
local function next_in_line(absent)
  local head = call('ZRANGE', queue_x, 0, 0, 'WITHSCORES')
  local oldest = call('ZRANGE', clients, 0, 0, 'WITHSCORES')
  local all_live = head[1] and oldest[1] and number(oldest[2]) > now
  if all_live and call('EXISTS', sharers, queue_s, absent or queue_s) == 0 then
    local ask, to, reentry, floor = string.match(call('HGET', details, head[1]) or '',
      '^([^\n]*\n[^\n]*\n[^\n]*\n([^\n]*)\n[^\n]*\n([^\n]*)\n%d+)\n%d+\n%d+\n\n(%d*)$')
    local ends = to == oldest[1] and oldest[2] or to and call('ZSCORE', clients, to)
    return reentry == '' and ends and head[1], ask, to, floor, head[2], ends
  end
end

-- Its place is given up: what it is worth is taken off its sum, unless that is done already.
local function leave_line(claim, to, sum, worth)
  call('ZREM', queue_x, claim)
  call('ZREM', places, 'c:' .. to .. ':' .. claim)
  -- Without places a client's heartbeat means nothing here, nor the order without a queue.
  if not sum or redis.pcall('HINCRBY', details, sum, -worth) ~= 0 then
    call('HDEL', details, claim)
  elseif #places_of('c:' .. to .. ':', 1) > 0 then
    call('HDEL', details, claim, sum)
  else
    call('ZREM', clients, to)
    call('HDEL', details, claim, sum, call('EXISTS', places) == 0 and '~o' or claim)
  end
end

-- Lets it in; what it has to be told.
local function enter(claim, ask, ticket, ends, fence)
  call('SET', main, claim .. ' ' .. fence .. ' ' .. ask .. '\n' .. now_text .. '+', 'PXAT', ends)
  return 'granted ' .. claim .. ' ' .. ticket .. ' ' .. fence
end

-- Tells a client, or returns what it has to be told if it is the one that called. Not on a cluster,
-- where a call may be made again out of sight, and the answer is then another one.
local function tell(to, news)
  if to == client and string.sub(ARGV[3], 1, 1) ~= 'S' then
    return news
  end
  push(to, news)
  return ''
end
