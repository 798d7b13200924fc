-- Tells what a session limits and what of it waits for permits; hears what others limit, and what is paused.
-- KEYS clock blocks specs session: blocks: see rate_block; specs ZSET limits, as text -> lease clock until which some session
--      keeps them; session HASH: waits, and waited, the lease clock of that, are for people
-- ARGV run_id, {spec, keep, waits}: keep: ms for which spec counts from now on; waits: text, '' where nothing waits
-- Returns {{key, ms left, …} of what is blocked, 1000 keys at most; {limits of others, …}}
local clock, blocks, specs, session = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local ask = cmsgpack.unpack(ARGV[2])
local now = advance(clock)
redis.call('ZADD', specs, int(now + ask.keep), ask.spec)
redis.call('ZREMRANGEBYSCORE', specs, '-inf', int(now))
if ask.waits == '' then
  redis.call('HDEL', session, 'waits', 'waited')
elseif redis.call('EXISTS', session) == 1 then
  redis.call('HSET', session, 'waits', ask.waits, 'waited', int(now))
end
redis.call('ZREMRANGEBYSCORE', blocks, '-inf', int(now))
local found = redis.call('ZRANGEBYSCORE', blocks, '-inf', '+inf', 'WITHSCORES', 'LIMIT', 0, 1000)
for i = 2, #found, 2 do found[i] = int(found[i] - now) end
local others = {}
for _, spec in ipairs(redis.call('ZRANGE', specs, 0, -1)) do
  if spec ~= ask.spec then others[#others + 1] = spec end
end
return {found, others}
