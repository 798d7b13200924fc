-- A session says what it holds: after the server restarted, or after it was lost and opened anew (previous).
-- What the records still name for it stays; what is free is leased to it again; what another has is lost to it.
-- What the records name but it did not report becomes pending. Afterwards the session may be granted again.
-- KEYS clock sessions session ready slots delayed state held held-of-previous
-- ARGV run_id, sid, n, previous ('' for none), {{digest, fence}, …}
-- Returns the fences now held, one for each entry, joined by spaces, 0 where it is lost; or 'lost'; or 'older'
local clock, sessions, session, ready, slots = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local delayed, state, held, held_before = KEYS[6], KEYS[7], KEYS[8], KEYS[9]
local run_id, sid, n, previous, entries = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4], cmsgpack.unpack(ARGV[5])

local now, wall, micros = advance(clock)
local number = generation(clock, sessions, run_id, now)
if deadline_of(sessions, sid) <= now then return 'lost' end
local before = replay(session, 'report', n)
if before then return before end
local fence, reply, kept = next_fences(clock, micros, #entries), {}, {}

local function take(digest, record)
  if record[STATE] == 'P' then
    redis.call('ZREM', ready, member(record, digest))
    rank_slot(ready, slots, record[SLOT])
  elseif record[STATE] == 'D' then
    redis.call('ZREM', delayed, digest)
  else
    redis.call('SREM', held_before, digest)
  end
  record[STATE], record[SESSION], record[FENCE], record[SINCE] = 'L', sid, fence, math.floor(wall / 1000)
  redis.call('HSET', state, digest, cmsgpack.pack(record))
  redis.call('SADD', held, digest)
  fence = fence + 1
  return int(fence - 1)
end

for i, entry in ipairs(entries) do
  local digest, packed = entry[1], redis.call('HGET', state, entry[1])
  local record = packed and cmsgpack.unpack(packed)
  reply[i] = '0'
  if record and record[STATE] == 'L' and record[SESSION] == sid and record[FENCE] == entry[2] then
    reply[i] = int(record[FENCE])
  elseif record and (record[STATE] ~= 'L' or (record[SESSION] == previous and record[FENCE] == entry[2])) then
    reply[i] = take(digest, record)
  end
  if reply[i] ~= '0' then kept[digest] = true end
end

local list = {}
for _, digest in ipairs(redis.call('SMEMBERS', held)) do
  local packed = not kept[digest] and redis.call('HGET', state, digest)
  local record = packed and cmsgpack.unpack(packed)
  if record and record[STATE] == 'L' and record[SESSION] == sid then
    leave(record)
    redis.call('HSET', state, digest, cmsgpack.pack(record))
    list[#list + 1], list[#list + 2] = digest, record
  end
  if not kept[digest] then redis.call('SREM', held, digest) end
end
make_ready(ready, slots, list)
redis.call('HSET', session, 'generation', int(number))
local answer = table.concat(reply, ' ')
remember(session, 'report', n, answer)
return answer
