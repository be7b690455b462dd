-- Refuses a stale fence, else raises it. KEYS: value, fence. ARGV[1]: the fence.
-- Fences are below 2^53, so Lua compares them exactly.
local newest = redis.call('GET', KEYS[2]) or '0'
if tonumber(ARGV[1]) < tonumber(newest) then
    return { 0, newest }
end
redis.call('SET', KEYS[2], ARGV[1])
