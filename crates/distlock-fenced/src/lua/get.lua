return { 1, redis.call('GET', KEYS[1]) }
