-- Brings exported items back into the backlog, each with its place, attempts and deaths; all are pending.
-- KEYS clock meta ready slots state payload dead, then the done bucket of each entry
-- ARGV run_id, {{slot, order, mark, attempts, deaths, ttl}, …}, then digest, done field and payload of each entry
--      ttl: s for which a mark counts, 0 for ever
-- Returns one character an entry: + accepted, = in the backlog already, . done already
local clock, meta, ready, slots = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local state, payload, dead = KEYS[5], KEYS[6], KEYS[7]
local FIRST_BUCKET = 7
local SEQUENCES = 1e11
local entries = cmsgpack.unpack(ARGV[2])

local _, wall = advance(clock)
local known = redis.call('HMGET', meta, 'run', 'seq')
local run, seq = tonumber(known[1]) or 1, tonumber(known[2]) or 0

local function is_done(bucket, mark_kind, field, ttl)
  local mark = mark_kind ~= 'none' and tonumber(redis.call('HGET', bucket, field))
  if not mark then return false end
  if mark < 0 then return mark == -run end
  return ttl == 0 or math.floor(wall / 1000) - MARK_EPOCH - mark < ttl
end

local reply, list, accepted = {}, {}, 0
for i, entry in ipairs(entries) do
  local slot, order, mark, attempts, deaths, ttl = unpack(entry)
  local digest, field, body = ARGV[3 * i], ARGV[3 * i + 1], ARGV[3 * i + 2]
  if redis.call('HEXISTS', state, digest) == 1 then
    reply[i] = '='
  elseif is_done(KEYS[FIRST_BUCKET + i], mark, field, ttl) then
    reply[i] = '.'
  else
    local record = {'P', slot, order, mark, attempts, deaths, '', 0, 0, 0}
    redis.call('HSET', state, digest, cmsgpack.pack(record))
    redis.call('HSET', payload, digest, body)
    redis.call('HDEL', dead, digest)
    list[#list + 1], list[#list + 2] = digest, record
    reply[i], accepted, seq = '+', accepted + 1, math.max(seq, tonumber(order) % SEQUENCES)
  end
end
make_ready(ready, slots, list)
if accepted > 0 then
  redis.call('HSET', meta, 'seq', int(seq))
  redis.call('HINCRBY', meta, 'accepted', accepted)
end
if accepted < #entries then redis.call('HINCRBY', meta, 'duplicate', #entries - accepted) end
return table.concat(reply)
