-- Moves up to 100 items of one session that is over (expired, or closed) back to pending, and forgets it when none is left.
-- A session that died counts against its items: past the limit they are dead, and so is what it may have sent, where the
-- job asks for at most once. A session that closed counts nothing.
-- KEYS clock sessions session meta members producing ready slots delayed state dead held   (session, held: of the one that is over)
-- ARGV run_id, sid, deaths allowed, 'refetch' | 'park'
-- Returns {moved, left}; {0, -1} while it lives or the server's grace runs
local clock, sessions, session, meta = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local members, producing, ready, slots = KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local delayed, state, dead, held = KEYS[9], KEYS[10], KEYS[11], KEYS[12]
local run_id, sid, allowed, policy = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]

local now, wall = advance(clock)
local _, grace = generation(clock, sessions, run_id, now)
local closed = redis.call('HGET', session, 'closed') == '1'
if deadline_of(sessions, sid) > now or (grace and not closed) then return {0, -1} end

local function bury(digest, record, reason)
  redis.call('HSET', dead, digest, cmsgpack.pack({reason, '', record[ATTEMPTS], record[DEATHS],
    math.floor(wall / 1000), record[SLOT], record[ORDER]}))
  redis.call('HDEL', state, digest)
  redis.call('HINCRBY', meta, 'died', 1)
end

-- Items that saw two sessions die wait a while each of its own, so that one that kills is met again without the innocent.
local function apart(digest, deaths)
  return (string.byte(digest, 1) * 256 + string.byte(digest, 2)) * math.min(2 ^ deaths, 32) / 32
end

local digests, list = redis.call('SRANDMEMBER', held, 100), {}
for i, packed in ipairs(#digests > 0 and bulk_get(state, digests) or {}) do
  local digest, record = digests[i], packed and cmsgpack.unpack(packed)
  if record and record[STATE] == 'L' and record[SESSION] == sid then
    if not closed then
      record[DEATHS] = record[DEATHS] + 1
      redis.call('HINCRBY', meta, 'taken_over', 1)
    end
    if not closed and policy == 'park' and record[SENT] == 1 then
      bury(digest, record, 'doubtful')
    elseif not closed and record[DEATHS] >= allowed then
      bury(digest, record, 'deaths')
    else
      leave(record)
      if not closed and record[DEATHS] > 1 then
        record[STATE] = 'D'
        redis.call('ZADD', delayed, int(now + apart(digest, record[DEATHS])), digest)
      else
        list[#list + 1], list[#list + 2] = digest, record
      end
      redis.call('HSET', state, digest, cmsgpack.pack(record))
    end
  end
end
make_ready(ready, slots, list)
if #digests > 0 then redis.call('SREM', held, unpack(digests)) end
local left = redis.call('SCARD', held)
if left == 0 then
  redis.call('ZREM', sessions, sid)
  redis.call('ZREM', members, sid)
  redis.call('SREM', producing, sid)
end
return {#digests, left}
