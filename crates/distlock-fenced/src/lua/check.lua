-- Refuses a fence that is not the one that was raised last. KEYS: value, fence. ARGV[1]: the fence.
local newest = redis.call('GET', KEYS[2]) or '0'
if tonumber(ARGV[1]) ~= tonumber(newest) then
    return { 0, newest }
end
