-- Keeps one claim alive, held or waiting, and says where it stands.
--
-- ARGV  3 span in ms, 4 weight to lower to, 5 fence floor. An empty string means none.
-- Returns, after the claim id, {'held', fence} | {'gone'}
--       | {'waiting', ticket, ahead, ms until a lease ends or -1}
local span, weight, floor = number(ARGV[3]), number(ARGV[4]), number(ARGV[5])

local function raised(fence)
  fence = max(fence, floor)
  counter = max(last_number(), fence)
  return fence
end

-- All claims of a thread of work share one fence.
local function raise_all()
  held.fence = raised(held.fence)
  for _, sibling in ipairs(call('ZRANGE', sharers, 0, -1)) do
    local h = details_of(sibling)
    if h then
      h.fence = held.fence
      call('HSET', details, sibling, pack(h))
    end
  end
  write_exclusive(held, held.ends)
end

local function renew_main()
  extend_main(span)
  if floor then
    raise_all()
  end
  local fence = held.fence
  if weight and weight < held.weight then
    -- A writer turns into a reader.
    local reader, ends = held, held.ends
    reader.weight, reader.exclusive, held = weight, false, nil
    put_shared(reader, ends)
  end
  return reply('held', whole(fence))
end

local function renew_sharer(h)
  extend_sharer(id, span)
  if held.kind == 'exclusive' then
    if floor then
      raise_all()
    end
    return reply('held', whole(held.fence))
  end
  h.fence = floor and raised(h.fence) or h.fence
  local lower = weight and math.min(weight, h.weight) or h.weight
  if lower < h.weight then
    change_weight(lower - h.weight)
    h.weight = lower
  end
  call('HSET', details, id, pack(h))
  return reply('held', whole(h.fence))
end

local function stand()
  local h = details_of(id)
  local ticket = ticket_of(h)
  if ticket then
    hear(h, ticket, now + span)
    local order = order_now() or '0'
    return reply('waiting', whole(ticket), ahead(order, h.exclusive, ticket), retry_after())
  elseif held and held.id == id then
    return renew_main()
  end
  h = sharer_of(id)
  return h and renew_sharer(h) or reply('gone')
end

settle()
local result = stand()
if weight then
  admit()
end
finish()
return result
