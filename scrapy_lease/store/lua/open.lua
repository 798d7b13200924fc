-- Opens a session in a scope (a job, or one named run of it) and begins a new run when the last one is over.
-- KEYS clock sessions session meta members producing state start
-- ARGV run_id, {sid, ttl, config, shards, fresh, info}: ttl in ms; config: what live sessions must agree on;
--      fresh: 1 where an ended run makes way for a new one; info: {field, value, …} shown to people
-- Returns {'ok', generation, run, live} | {'config', theirs} | {'shards', theirs}
local clock, sessions, session, meta = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local members, producing, state, start = KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local run_id, ask = ARGV[1], cmsgpack.unpack(ARGV[2])
local sid, ttl = ask.sid, ask.ttl

local shards = redis.call('HGET', clock, 'shards')
if shards and shards ~= int(ask.shards) then return {'shards', shards} end
local now, wall = advance(clock)
local number = generation(clock, sessions, run_id, now)
local live = redis.call('ZCOUNT', members, '(' .. int(now), '+inf')
local config = redis.call('HGET', meta, 'config')
if live > 0 and config and config ~= ask.config then return {'config', config} end

local run = tonumber(redis.call('HGET', meta, 'run')) or 0
local is_over = run > 0 and ask.fresh == 1 and live == 0 and redis.call('HLEN', state) == 0
if is_over then
  redis.call('HDEL', meta, 'accepted', 'duplicate', 'done', 'rejected', 'failed', 'died', 'taken_over')
end
if run == 0 or is_over then
  -- Also in the first run: to a server that had forgotten it somebody may have said that start() has ended.
  redis.call('DEL', start, producing)
  run = run + 1
  redis.call('HSET', meta, 'run', int(run), 'run_began', int(wall))
end
local ttl_max = math.max(ttl, tonumber(redis.call('HGET', clock, 'ttl_max')) or 0)
redis.call('HSET', clock, 'shards', int(ask.shards), 'ttl_max', int(ttl_max))
redis.call('HSET', meta, 'config', ask.config)
redis.call('ZADD', sessions, int(now + ttl), sid)
redis.call('ZADD', members, int(now + ttl), sid)
redis.call('SADD', producing, sid)
redis.call('HSET', session, 'generation', int(number), 'opened', int(wall), unpack(ask.info))
redis.call('PEXPIRE', session, SESSION_KEPT)
return {'ok', number, run, live + 1}
