-- Removes up to 500 items from the backlog with their requests, whatever their state; dead letters and done marks stay.
-- Needs nothing of the form of records and no memory, so it works on a full server.
-- KEYS clock members ready slots delayed state payload, then the held set of each listed session
-- ARGV run_id, 1 to go on under live sessions that hold items | 0, {sid, …}: the sessions of the scope
-- Returns {'ok', removed, left} | {'held', sid, number} of a live session | {'unknown', sid}: live, but not listed
local clock, members, ready, slots = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local delayed, state, payload = KEYS[5], KEYS[6], KEYS[7]
local FIRST_HELD = 7
local force, sids = ARGV[2] == '1', cmsgpack.unpack(ARGV[3])

local held = {}
for i, sid in ipairs(sids) do held[sid] = KEYS[FIRST_HELD + i] end
if not force then
  local now = redis.call('HGET', clock, 'now') or '0'
  for _, sid in ipairs(redis.call('ZRANGEBYSCORE', members, '(' .. now, '+inf')) do
    if not held[sid] then return {'unknown', sid} end
    local number = redis.call('SCARD', held[sid])
    if number > 0 then return {'held', sid, number} end
  end
end

local digests = redis.call('HRANDFIELD', state, 500)
if #digests > 0 then
  redis.call('HDEL', state, unpack(digests))
  redis.call('HDEL', payload, unpack(digests))
end
local left = redis.call('HLEN', state)
if left == 0 then
  redis.call('UNLINK', ready, slots, delayed)
  for _, key in pairs(held) do redis.call('UNLINK', key) end
end
return {'ok', #digests, left}
