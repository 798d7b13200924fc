-- Who reads start(): one live session of a run, another when it dies.
-- KEYS clock sessions start producing
-- ARGV run_id, sid, 'claim' | 'finish' | 'leave', 'one' | 'each'
-- Returns 'yours' | 'wait' | 'over' for a claim; 'ok' otherwise. finish: start() was read and all it yielded is in the
--         backlog. leave: this session has nothing more to produce (it read in vain, or another did).
local clock, sessions, start, producing = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local sid, verb, mode = ARGV[2], ARGV[3], ARGV[4]

local now = advance(clock)
if verb == 'claim' then
  if mode == 'each' then return 'yours' end
  local known = redis.call('HMGET', start, 'reader', 'over')
  if known[2] then return 'over' end
  if known[1] and known[1] ~= sid and deadline_of(sessions, known[1]) > now then return 'wait' end
  redis.call('HSET', start, 'reader', sid)
  return 'yours'
end
if verb == 'finish' and mode == 'one' then
  -- A reader that lost its session and goes on under another has read all the same, unless somebody took over.
  local reader = redis.call('HGET', start, 'reader')
  if reader == sid or not reader or deadline_of(sessions, reader) <= now then redis.call('HSET', start, 'over', '1') end
end
redis.call('SREM', producing, sid)
return 'ok'
