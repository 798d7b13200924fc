-- Brings exported items back into the backlog, each with its place, attempts and deaths; all are pending.
-- KEYS clock meta ready slots state payload dead, then the done bucket of each entry
-- ARGV run_id, {{slot, order, mark, attempts, deaths, ttl}, …}, then digest, done field and payload of each entry
--      mark: auto, run or none; ttl: s for which a mark counts, 0 for ever
-- Returns one character an entry: + accepted, = in the backlog already, . done already
local clock, meta, ready, slots = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local state, payload, dead = KEYS[5], KEYS[6], KEYS[7]
local FIRST_BUCKET = 7
local SEQUENCES = 1e11
local entries = cmsgpack.unpack(ARGV[2])

local _, wall = advance(clock)
local known = redis.call('HMGET', meta, 'run', 'seq')
local run, seq, seconds = tonumber(known[1]) or 1, tonumber(known[2]) or 0, math.floor(wall / 1000)

local function code_of(mark, ttl)
  if mark == 'none' then return 'n' end
  if mark == 'run' then return 'r' end
  return ttl > 0 and 't' or 'k'
end

local reply, items, accepted = {}, {}, 0
for i, entry in ipairs(entries) do
  local slot, order, mark, attempts, deaths, ttl = unpack(entry)
  local digest, body, code = ARGV[3 * i], ARGV[3 * i + 2], code_of(mark, ttl)
  if redis.call('HEXISTS', state, digest) == 1 then
    reply[i] = '='
  elseif code ~= 'n' and not is_new(KEYS[FIRST_BUCKET + i], dead, digest, code, ttl, run, seconds) then
    reply[i] = '.'
  else
    local value = record(code, attempts, deaths, order, slot, body)
    redis.call('HSET', state, digest, value)
    if redis.call('HDEL', dead, digest) == 1 then redis.call('HDEL', payload, digest) end
    items[#items + 1], items[#items + 2] = digest, value
    reply[i], accepted, seq = '+', accepted + 1, math.max(seq, tonumber(order) % SEQUENCES)
  end
end
make_ready(meta, ready, slots, items)
if accepted > 0 then
  redis.call('HSET', meta, 'seq', int(seq))
  redis.call('HINCRBY', meta, 'accepted', accepted)
end
if accepted < #entries then redis.call('HINCRBY', meta, 'duplicate', #entries - accepted) end
return table.concat(reply)
