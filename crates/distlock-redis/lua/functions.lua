-- Makes the verbs functions of the library. Memory that is full must not keep a client from holding
-- on or letting go; an acquire is then refused as a whole.
local function register(name, ...)
  redis.register_function({
    function_name = 'LIBRARY_' .. name, callback = run(verbs[name]), flags = { ... },
  })
end

register('acquire')
register('many')
register('append')
register('release', 'allow-oom')
register('renew', 'allow-oom')
register('renew_one', 'allow-oom')
register('confirm', 'allow-oom')
register('heartbeat', 'allow-oom')
register('digest', 'allow-oom')
register('raise', 'allow-oom')
register('inspect', 'no-writes')
register('history', 'no-writes')
