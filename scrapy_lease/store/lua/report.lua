-- A session says what it holds: after the server restarted, or after it was lost and opened anew (previous).
-- What it still holds by the store's account stays; what is free is leased to it again; what another has is lost to it.
-- What the store says it holds but it did not report becomes pending. Afterwards the session may be granted again.
-- KEYS clock sessions session meta ready slots delayed state held held-of-previous
-- ARGV run_id, sid, n, {{digest, …}, {fence, …}}
-- Returns the fences now held, one for each entry, joined by spaces, 0 where it is lost; or 'lost'; or 'older'
local clock, sessions, session, meta, ready = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local slots, delayed, state, held, held_before = KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10]
local run_id, sid, n = ARGV[1], ARGV[2], tonumber(ARGV[3])
local digests, fences = unpack(cmsgpack.unpack(ARGV[4]))

local now, _, micros = advance(clock)
local number = generation(clock, sessions, run_id, now)
if deadline_of(sessions, sid) <= now then return 'lost' end
local before = replay(session, 'report', n)
if before then return before end

-- Takes a digest that is free from its place, and returns what is to follow its new fence: what may have been sent under the
-- lost session may still have been.
local function free(digest, value, fence)
  local lease = redis.call('HGET', held_before, digest)
  if is_held(lease, fence) then
    redis.call('HDEL', held_before, digest)
    return string.sub(lease, FENCE + 1)
  end
  return (leave_ready(meta, ready, slots, digest, value) or redis.call('ZREM', delayed, digest) == 1) and ''
end

local fence, reply, kept = next_fence(clock, micros), {}, {}
for i, digest in ipairs(digests) do
  local value, lease = redis.call('HGET', state, digest), redis.call('HGET', held, digest)
  reply[i] = '0'
  if value and is_held(lease, fences[i]) then
    reply[i] = fences[i]
  else
    local sent = value and not lease and free(digest, value, fences[i])
    if sent then
      reply[i] = fence
      redis.call('HSET', held, digest, fence .. sent)
    end
  end
  if reply[i] ~= '0' then kept[digest] = true end
end

local pending, dropped = {}, {}
for _, digest in ipairs(redis.call('HKEYS', held)) do
  if not kept[digest] then
    local value = redis.call('HGET', state, digest)
    if value then pending[#pending + 1], pending[#pending + 2] = digest, value end
    dropped[#dropped + 1] = digest
  end
end
bulk('HDEL', held, dropped)
make_ready(meta, ready, slots, pending)
redis.call('HSET', session, 'generation', int(number))
local answer = table.concat(reply, ' ')
remember(session, 'report', n, answer)
return answer
