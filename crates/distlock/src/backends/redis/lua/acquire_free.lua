-- The usual case: nobody holds, waits or is buried here.
--
-- ARGV  6 owner, 7 reason, 8 weight, 9 capacity, 10 order, 11 group, 12 reentry id, 13 ttl,
--       14 fence floor, 15 place, 16 most waiters. An empty string means none.
-- Returns what acquire.lua returns.
local ask = {
  id = id, client = client, owner = ARGV[6], reason = ARGV[7], weight = number(ARGV[8]),
  capacity = number(ARGV[9]), order = ARGV[10], group = ARGV[11], reentry = ARGV[12],
  floor = ARGV[14], since = now,
}
local ttl = number(ARGV[13])
ask.exclusive = ask.weight == ask.capacity

if ask.exclusive and call('EXISTS', main, sharers, queue_x, queue_s, graves) == 0 then
  ask.fence = mint(number(ask.floor) or now_us)
  call('SET', main, exclusive_text(ask), 'PX', whole(ttl))
  keep_counter(ttl)
  return reply('granted', whole(ask.fence))
end
