-- What most calls are, beside the law: taking a free mutex and giving it back. And many requests in
-- one call.

-- Takes a key without holder, waiter or tombstone, for a claim on its whole capacity and
-- nothing more to say. Anything else is nil, and the law decides.
local function take_free(call, keys, args)
  local main = keys[1]
  local says_more = args[5] and (not args[9] or table.concat(args, '', 5, 8) ~= '')
  if says_more or redis.call('EXISTS', main, keys[8] or main .. ':d') > 0 then
    return nil
  end
  local id, ttl, since = args[1], args[3], present(call)
  local names = { fence = fence_of(keys), one_counter = has_one_counter(keys) }
  local fence = mint(call, names, nil, ttl)
  if not fence then
    return nil
  end
  redis.call('SET', main, id .. ' ' .. fence .. ' ' .. args[2] .. '\n' .. since, 'PX', ttl)
  return id .. '\ngranted\n' .. fence
end

-- Gives back an exclusive hold for which no claim waits.
local function give_back(keys, args)
  local id, main = args[1], keys[1]
  local text = not args[2] and redis.pcall('GET', main)
  if type(text) ~= 'string' or string.find(text, id, 1, true) ~= 1 then
    return nil
  end
  -- A '+' at the end: there may be side keys, see codec.lua.
  if string.byte(text, -1) == 43 and redis.call('EXISTS', keys[8] or main .. ':d') > 0 then
    return nil
  end
  redis.call('DEL', main)
  return id .. '\nheld'
end

-- On a cluster each key has a counter, and a replica that became the primary may have lost the last
-- numbers: every ask brings the largest fence that its client has seen of any key.
local function raise_to_seen(call, keys, seen)
  if seen then
    call.counter = math.max(last_number(call, fence_of(keys)), tonumber(seen))
  end
end

function verbs.acquire(call, keys, args)
  raise_to_seen(call, keys, args[9])
  return take_free(call, keys, args) or acquire(call, keys, args)
end

function verbs.release(call, keys, args)
  return give_back(keys, args) or release(call, keys, args)
end

verbs.renew, verbs.renew_one, verbs.confirm = renew, renew_one, confirm
verbs.heartbeat, verbs.digest, verbs.inspect = heartbeat, digest, inspect

-- Gives back what `give_back` would, with one look and one deletion for all.
local function give_back_all(keys, args, releases, answers)
  local free, seen = {}, {}
  local texts = releases > 0 and redis.call('MGET', unpack(keys, 1, releases)) or {}
  for i, text in ipairs(texts) do
    local id, main = args[i + 1], keys[i]
    if text and not seen[main] and string.find(text, id, 1, true) == 1
      and string.byte(text, -1) ~= 43 then
      free[#free + 1], seen[main], answers[i] = main, true, id .. '\nheld'
    end
  end
  if free[1] then
    redis.call('DEL', unpack(free))
  end
end

-- Takes what `take_free` would, with one number for all: fences grow from one holder of a key to
-- the next, and no key is granted twice here.
local function take_all_free(call, keys, args, releases, answers)
  if releases == #keys then
    return
  end
  local looked = {}
  for i = releases + 1, #keys do
    looked[#looked + 1] = keys[i]
    looked[#looked + 1] = keys[i] .. ':d'
  end
  local all_free, since = redis.call('EXISTS', unpack(looked)) == 0, present(call)
  local fence = mint(call, { fence = fence_of({ keys[1] }), one_counter = true })
  for i = releases + 1, fence and #keys or 0 do
    local at = 4 * i - 3 * releases - 2
    local id, main = args[at], keys[i]
    local text = id .. ' ' .. fence .. ' ' .. args[at + 1] .. '\n' .. since
    if (all_free or redis.call('EXISTS', main, main .. ':d') == 0)
      and redis.call('SET', main, text, 'NX', 'PX', args[at + 2]) then
      answers[i] = id .. '\ngranted\n' .. fence
    end
  end
end

-- Many requests for mutexes, on a server whose keys share a counter: releases, then acquires.
--
-- KEYS  the main key of each. ARGV  1 how many are released; the claim id of each; then of each
--       that is acquired the first four arguments of acquire.
-- Returns the answer to each, or an empty text where there is none: asked again by itself, the
--       caller hears the error.
function verbs.many(call, keys, args)
  local releases, answers = tonumber(args[1]), {}
  give_back_all(keys, args, releases, answers)
  take_all_free(call, keys, args, releases, answers)
  for i, main in ipairs(keys) do
    if not answers[i] then
      local from = i <= releases and i + 1 or 4 * i - 3 * releases - 2
      local verb, last = i <= releases and release or acquire, i <= releases and from or from + 3
      local ok, answer = pcall(verb, call, { main }, { unpack(args, from, last) })
      answers[i] = ok and answer or ''
    end
  end
  return answers
end

-- Raises the counter that all keys share to the largest number that a client has seen: the server
-- may be a replica that became the primary without the last numbers, and its clock may be behind.
--
-- KEYS  the counter. ARGV  1 the number. Returns 1.
function verbs.raise(_, keys, args)
  local last = redis.pcall('GET', keys[1])
  local less = not last or type(last) == 'string' and (tonumber(last) or 0) < tonumber(args[1])
  if less and tonumber(args[1]) > 0 then
    redis.call('SET', keys[1], args[1], 'PX', NAMESPACE_COUNTER_LIFE)
  end
  return 1
end

-- How every verb is run: numbers that were given out are written down even if the verb fails.
local function run(verb)
  return function(keys, args)
    local call = {}
    local ok, answer = pcall(verb, call, keys, args)
    finish(call)
    if not ok then
      -- pcall leaves of an error its text only. One without a code is our own.
      local is_coded = type(answer) == 'string' and string.find(answer, '^%u+ ')
      error(type(answer) == 'table' and answer or { err = (is_coded and '' or 'ERR ') .. answer })
    end
    return answer
  end
end
