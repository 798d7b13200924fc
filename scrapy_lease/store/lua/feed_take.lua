-- Moves up to want entries of a feed (the user's list, set or sorted set) into the hash of what a session took of it.
-- An entry is in exactly one of the feed, one taken hash and the failed list; each script moves it in one step:
--   feed -> taken    feed_take, under an id that no other entry ever has, not even after a server lost its last writes
--   taken -> gone    feed_settle d: all that was made of it is in the backlog
--   taken -> failed  feed_settle f: no request can be made of it
--   taken -> feed    feed_settle b: its session leaves, and nothing was made of it
-- A call whose reply is lost is not repeated as such: what it took is in the session's hash, where the session looks
-- when held is more than it knows of. Others find it there when the session is over; see scrapy_lease.feeds.
-- taken HASH id -> score (of a sorted set), a space, the entry;  readers SET of the sessions whose taken hash is not empty
-- KEYS feed readers taken
-- ARGV run_id, sid, 'list' | 'set' | 'zset', want
-- Returns {'ok', held, {reader, …}, {id, value, …}}: held counts what the session has in taken now
--         | {'type', what the feed is instead}
local feed, readers, taken = KEYS[1], KEYS[2], KEYS[3]
local sid, kind, want = ARGV[2], ARGV[3], tonumber(ARGV[4])

local found = redis.call('TYPE', feed).ok
if found ~= kind and found ~= 'none' then return {'type', found} end

local pop = {
  list = function()
    local values = redis.call('LRANGE', feed, 0, want - 1)
    redis.call('LTRIM', feed, #values, -1)
    for i, entry in ipairs(values) do values[i] = ' ' .. entry end
    return values
  end,
  set = function()
    local values = redis.call('SPOP', feed, want)
    for i, entry in ipairs(values) do values[i] = ' ' .. entry end
    return values
  end,
  zset = function()
    local values, popped = {}, redis.call('ZPOPMAX', feed, want)
    for i = 1, #popped, 2 do values[#values + 1] = popped[i + 1] .. ' ' .. popped[i] end
    return values
  end,
}

local entries = {}
if want > 0 and found ~= 'none' then
  local time = redis.call('TIME')
  local moment = string.format('%d%06d', time[1], time[2])
  for i, value in ipairs(pop[kind]()) do
    entries[#entries + 1] = string.format('%s-%04d', moment, i)
    entries[#entries + 1] = value
  end
  bulk('HSET', taken, entries)
  redis.call('SADD', readers, sid)
end
return {'ok', redis.call('HLEN', taken), redis.call('SMEMBERS', readers), entries}
