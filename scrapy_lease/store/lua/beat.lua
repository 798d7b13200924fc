-- Renews a session: the one thing that is ever renewed, whatever hangs on it.
-- KEYS clock sessions session members control
-- ARGV run_id, {sid, ttl, node, job}: ttl in ms
-- Returns {'ok', generation, live, paused, draining, reported} | {'lost'}: lost once the deadline has passed, for good
local clock, sessions, session, members, control = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local run_id, ask = ARGV[1], cmsgpack.unpack(ARGV[2])

local now, wall = advance(clock)
local number = generation(clock, sessions, run_id, now)
if deadline_of(sessions, ask.sid) <= now then return {'lost'} end
local deadline = int(now + ask.ttl)
redis.call('ZADD', sessions, 'XX', 'GT', deadline, ask.sid)
redis.call('ZADD', members, 'XX', 'GT', deadline, ask.sid)
redis.call('HSET', session, 'beat', int(wall), 'ttl', int(ask.ttl))
redis.call('PEXPIRE', session, SESSION_KEPT)
local ttl_max = tonumber(redis.call('HGET', clock, 'ttl_max')) or 0
if ask.ttl > ttl_max then redis.call('HSET', clock, 'ttl_max', int(ask.ttl)) end
local live = redis.call('ZCOUNT', sessions, '(' .. int(now), '+inf')
local flags = redis.call('HMGET', control, 'pause:' .. ask.job, 'drain:' .. ask.node)
local reported = redis.call('HGET', session, 'generation') == int(number)
return {'ok', number, live, flags[1] and 1 or 0, flags[2] and 1 or 0, reported and 1 or 0}
