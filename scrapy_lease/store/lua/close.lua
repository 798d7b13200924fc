-- Ends a session: nothing is granted to it any more, and what it still holds may be taken at once.
-- KEYS clock sessions session members producing
-- ARGV run_id, sid
-- Returns 'ok'; repeating it changes nothing
local clock, sessions, session, members, producing = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local sid = ARGV[2]

advance(clock)
if redis.call('EXISTS', session) == 1 then redis.call('HSET', session, 'closed', '1') end
redis.call('ZADD', sessions, 'XX', '0', sid)
redis.call('ZADD', members, 'XX', '0', sid)
redis.call('SREM', producing, sid)
return 'ok'
