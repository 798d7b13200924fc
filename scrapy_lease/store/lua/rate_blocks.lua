-- Tells what is blocked. KEYS clock blocks. ARGV run_id. Returns {key, ms left, …}, of 1000 keys at most.
local clock, blocks = KEYS[1], KEYS[2]
local now = advance(clock)
redis.call('ZREMRANGEBYSCORE', blocks, '-inf', int(now))
local found = redis.call('ZRANGEBYSCORE', blocks, '-inf', '+inf', 'WITHSCORES', 'LIMIT', 0, 1000)
for i = 2, #found, 2 do found[i] = int(found[i] - now) end
return found
