-- Says what becomes of entries that a session took from a feed: its own, or those of one that is over.
-- What is not in taken any more was settled before, so repeating a call changes nothing, and neither does a second who
-- settles the same entries.
-- KEYS feed readers taken failed
-- ARGV run_id, sid, 'list' | 'set' | 'zset', verbs, id, id, …
--      verbs: one character an entry: d done, f failed: to the end of the list failed, b back: first in the feed again
-- Returns how many were settled
local feed, readers, taken, failed = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local sid, kind, verbs = ARGV[2], ARGV[3], ARGV[4]
local FIRST = 4

local give_back = {
  list = function(score, entry) redis.call('LPUSH', feed, entry) end,
  set = function(score, entry) redis.call('SADD', feed, entry) end,
  -- An entry that was fed again meanwhile keeps the score it has now.
  zset = function(score, entry) redis.call('ZADD', feed, 'NX', score, entry) end,
}

local settled = 0
-- Backwards, so that what goes to the head of a list stands there in its old order.
for i = #ARGV - FIRST, 1, -1 do
  local id, verb = ARGV[FIRST + i], string.sub(verbs, i, i)
  local value = redis.call('HGET', taken, id)
  if value then
    redis.call('HDEL', taken, id)
    settled = settled + 1
    local score, entry = string.match(value, '^(%S*) (.*)$')
    if verb == 'f' then redis.call('RPUSH', failed, entry) end
    if verb == 'b' then give_back[kind](score, entry) end
  end
end
if redis.call('EXISTS', taken) == 0 then redis.call('SREM', readers, sid) end
return settled
