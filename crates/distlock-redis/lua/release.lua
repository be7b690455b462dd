-- Gives up a claim, or breaks a hold, and admits whoever is next.
--
-- Returns the claim id if the claim held until now, or that and 'waiting' | 'gone'. See also
-- release_next.lua.

local broken, keep, grave = string.match(ARGV[3] or '', '^(%S+) (%d+) (%d+)$')
broken, keep, grave = number(broken), number(keep) or 0, number(grave) or 0

-- The key stays taken until then, but by a claim that is dead.
local function keep_taken(h, ends)
  bury(id, ends)
  h.id, h.reentry, h.attempts = 'kept:' .. id, '', ''
  if h.exclusive then
    put_exclusive(h, ends)
  else
    put_shared(h, ends)
  end
end

local function give_up()
  if grave > 0 then
    bury(id, now + grave)
  end
  local h = details_of(id)
  local ticket = ticket_of(h)
  if ticket then
    leave_queue(h)
    leave_client(h.client, id, ticket)
    return 'waiting'
  elseif held and held.id == id then
    h = held
    drop_main()
    if keep > 0 then
      keep_taken(h, now + keep)
    end
    return 'held'
  elseif call('ZSCORE', sharers, id) then
    drop_sharers({ id })
    if h and h.fence and keep > 0 then
      keep_taken(h, now + keep)
    else
      after_leaving()
    end
    return 'held'
  end
  return 'gone'
end

-- Gives up one attempt, and the claim if it was the last. A claim that does not know the attempt is
-- left alone: it belongs to others.
local attempt, tombstone = string.match(ARGV[4] or '', '^(%x+) (%x+)$')

local function give_up_attempt()
  if grave > 0 then
    bury(tombstone, now + grave)
    grave = 0
  end
  local in_main = held and held.id == id
  local h = in_main and held or details_of(id)
  if not h or not string.find(h.attempts, attempt, 1, true) then
    return 'gone'
  elseif h.attempts == attempt then
    return give_up()
  end
  local left = {}
  for other in string.gmatch(h.attempts, '%x+') do
    left[#left + 1] = other ~= attempt and other or nil
  end
  h.attempts = table.concat(left, ',')
  if in_main then
    note_attempts(h)
  else
    call('HSET', details, id, pack(h))
  end
  return 'gone'
end

-- Ends every hold with this fence. The claims are buried for the rest of their leases, so that a
-- retry which is on its way cannot bring them back.
local function break_holds(fence)
  local hit = {}
  local function strike(h, ends)
    hit[#hit + 1] = h
    bury(string.sub(h.id, -32), max(ends, now + grave))
    push(h.client, 'broken ' .. string.sub(h.id, -32))
  end
  local main_hit = held and held.fence == fence and held.ends
  if main_hit then
    strike(held, held.ends)
  end
  local all = call('ZRANGE', sharers, 0, -1, 'WITHSCORES')
  for i = 1, #all, 2 do
    local h = details_of(all[i])
    if h and h.fence == fence then
      strike(h, number(all[i + 1]))
      drop_sharers({ all[i] })
    end
  end
  if main_hit then
    drop_main()
  elseif held then
    after_leaving()
  end
  return #hit > 0 and 'held' or 'gone'
end

settle()
local outcome = broken and break_holds(broken) or attempt and give_up_attempt() or give_up()
admit()
finish()
return outcome == 'held' and id or reply(outcome)
