-- ARGV[2]: the value.
redis.call('SET', KEYS[1], ARGV[2])
return { 1, false }
