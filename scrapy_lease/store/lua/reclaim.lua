-- Moves up to 100 items of one session that is over (expired, or closed) back to pending, and forgets it when none is left.
-- A session that died counts against its items: past the limit they are dead, and so is what it may have sent, where the
-- job asks for at most once. A session that closed counts nothing.
-- KEYS clock sessions session meta members producing ready slots delayed state payload dead held
--      (session, held: of the one that is over)
-- ARGV run_id, sid, deaths allowed, 'refetch' | 'park'
-- Returns {moved, left}; {0, -1} while it lives or the server's grace runs
local clock, sessions, session, meta = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local members, producing, ready, slots = KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local delayed, state, payload, dead, held = KEYS[9], KEYS[10], KEYS[11], KEYS[12], KEYS[13]
local run_id, sid, allowed, policy = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]

local now, wall = advance(clock)
local _, grace = generation(clock, sessions, run_id, now)
local closed = redis.call('HGET', session, 'closed') == '1'
if deadline_of(sessions, sid) > now or (grace and not closed) then return {0, -1} end

-- Items that saw two sessions die wait a while each of its own, so that one that kills is met again without the innocent;
-- another while after each death, so that the same ones do not meet again.
local function apart(digest, deaths)
  local first = deaths % DIGEST + 1
  local high, low = string.byte(digest, first), string.byte(digest, first % DIGEST + 1)
  return (high * 256 + low) * math.min(2 ^ deaths, 32) / 32
end

local digests, was_sent, pending, taken_over = {}, {}, {}, 0
local leases = redis.call('HRANDFIELD', held, 100, 'WITHVALUES')
for i = 1, #leases, 2 do
  digests[#digests + 1] = leases[i]
  was_sent[leases[i]] = string.sub(leases[i + 1], FENCE + 1) == SENT
end

local function survive(digest, value)
  local attempts, deaths = faults_of(value)
  deaths = deaths + 1
  value = with_faults(value, attempts, deaths)
  taken_over = taken_over + 1
  if policy == 'park' and was_sent[digest] then
    bury(meta, state, payload, dead, digest, value, 'doubtful', '', wall)
  elseif deaths >= allowed then
    bury(meta, state, payload, dead, digest, value, 'deaths', '', wall)
  else
    redis.call('HSET', state, digest, value)
    if deaths > 1 then
      redis.call('ZADD', delayed, int(now + apart(digest, deaths)), digest)
    else
      pending[#pending + 1], pending[#pending + 2] = digest, value
    end
  end
end

for i, value in ipairs(bulk_get(state, digests)) do
  if value and closed then
    pending[#pending + 1], pending[#pending + 2] = digests[i], value
  elseif value then
    survive(digests[i], value)
  end
end
make_ready(meta, ready, slots, pending)
if taken_over > 0 then redis.call('HINCRBY', meta, 'taken_over', taken_over) end
bulk('HDEL', held, digests)
local left = redis.call('HLEN', held)
if left == 0 then
  redis.call('ZREM', sessions, sid)
  redis.call('ZREM', members, sid)
  redis.call('SREM', producing, sid)
  redis.call('PEXPIRE', session, SESSION_FORGOTTEN)
end
return {#digests, left}
