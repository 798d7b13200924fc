-- Removes the listed items from the backlog with their requests and marks, whatever their state; dead letters stay.
-- Needs nothing of the form of records and no memory, so it works on a full server.
-- KEYS clock members meta ready slots delayed state, then the held hash of each listed session, then the done bucket of
--      each listed item
-- ARGV run_id, 1 to go on under live sessions that hold items | 0, {sid, …}: the sessions of the scope, {digest, …}
-- Returns {'ok', removed, left} | {'held', sid, number} of a live session | {'unknown', sid}: live, but not listed
local clock, members, meta, ready = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local slots, delayed, state = KEYS[5], KEYS[6], KEYS[7]
local FIRST_HELD = 7
local force, sids, digests = ARGV[2] == '1', cmsgpack.unpack(ARGV[3]), cmsgpack.unpack(ARGV[4])
local FIRST_BUCKET = FIRST_HELD + #sids

local held = {}
for i, sid in ipairs(sids) do held[sid] = KEYS[FIRST_HELD + i] end
if not force then
  local now = redis.call('HGET', clock, 'now') or '0'
  for _, sid in ipairs(redis.call('ZRANGEBYSCORE', members, '(' .. now, '+inf')) do
    if not held[sid] then return {'unknown', sid} end
    local number = redis.call('HLEN', held[sid])
    if number > 0 then return {'held', sid, number} end
  end
end

local removed = 0
for i, digest in ipairs(digests) do
  if redis.call('HDEL', state, digest) == 1 then
    redis.call('HDEL', KEYS[FIRST_BUCKET + i], string.sub(digest, 9))
    removed = removed + 1
  end
end
local left = redis.call('HLEN', state)
if left == 0 then
  redis.call('UNLINK', ready, slots, delayed)
  redis.call('HDEL', meta, 'ready')
  for _, key in pairs(held) do redis.call('UNLINK', key) end
end
return {'ok', removed, left}
