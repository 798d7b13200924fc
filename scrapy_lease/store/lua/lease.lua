-- Grants ready items to a live session, best order first, no download slot more than its room; tells how the run stands.
-- KEYS clock sessions session meta members producing ready slots delayed state payload held control
-- ARGV run_id, sid, n, {want, rooms, job}: rooms maps a slot to how many more it may take; an unlisted slot may take
--      three quarters of what is left, so that one host never fills the window
-- Returns {{'ok', grace, ready, delayed, leased, due, drained, paused, expired session or ''},
--          digest, fence, attempts, deaths, slot, mark, payload, digest, …} | {{'lost'}} | {{'report'}} | {{'older'}}
local clock, sessions, session, meta = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local members, producing, ready, slots = KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local delayed, state, payload, held, control = KEYS[9], KEYS[10], KEYS[11], KEYS[12], KEYS[13]
local run_id, sid, n, ask = ARGV[1], ARGV[2], tonumber(ARGV[3]), cmsgpack.unpack(ARGV[4])

local now, wall, micros = advance(clock)
local number, grace = generation(clock, sessions, run_id, now)
if deadline_of(sessions, sid) <= now then return {{'lost'}} end
if redis.call('HGET', session, 'generation') ~= int(number) then return {{'report'}} end
local paused = redis.call('HEXISTS', control, 'pause:' .. ask.job) == 1

local function wake_due()
  local due = redis.call('ZRANGEBYSCORE', delayed, '-inf', int(now), 'LIMIT', 0, 100)
  if #due == 0 then return end
  local list, states = {}, {}
  for i, packed in ipairs(bulk_get(state, due)) do
    local record = packed and cmsgpack.unpack(packed)
    if record and record[STATE] == 'D' then
      leave(record)
      list[#list + 1], list[#list + 2] = due[i], record
      states[#states + 1], states[#states + 2] = due[i], cmsgpack.pack(record)
    end
  end
  bulk('HSET', state, states)
  make_ready(ready, slots, list)
  bulk('ZREM', delayed, due)
end

local function pick()
  local left, picked, listed = ask.want, {}, 0
  for _ in pairs(ask.rooms) do listed = listed + 1 end
  for _, slot in ipairs(redis.call('ZRANGE', slots, 0, ask.want + listed - 1)) do
    if left <= 0 then break end
    local room = math.min(ask.rooms[slot] or math.max(1, math.floor(left * 0.75)), left)
    local found = room > 0 and first_of(ready, slot, room) or {}
    for _, entry in ipairs(found) do picked[#picked + 1] = string.sub(entry, #slot + 18) end
    if #found > 0 then
      redis.call('ZREMRANGEBYLEX', ready, '[' .. found[1], '[' .. found[#found])
      rank_slot(ready, slots, slot)
      left = left - #found
    end
  end
  return picked
end

local function grant(digests)
  local fence = next_fences(clock, micros, #digests)
  local states, granted = {}, {}
  for i, packed in ipairs(bulk_get(state, digests)) do
    if packed then
      local record = cmsgpack.unpack(packed)
      record[STATE], record[SESSION], record[FENCE], record[SINCE] = 'L', sid, fence, math.floor(wall / 1000)
      states[#states + 1], states[#states + 2] = digests[i], cmsgpack.pack(record)
      granted[#granted + 1], fence = digests[i], fence + 1
    end
  end
  bulk('HSET', state, states)
  bulk('SADD', held, granted)
  return granted
end

local before, granted = replay(session, 'lease', n), {}
if before == 'older' then return {{'older'}} end
if before then
  granted = cmsgpack.unpack(before)
elseif ask.want > 0 then
  if not grace and not paused then
    wake_due()
    granted = grant(pick())
  end
  -- Also where nothing was granted: a copy of this call that comes late must not take what nobody will hear of.
  remember(session, 'lease', n, cmsgpack.pack(granted))
end

local pending, waiting = redis.call('ZCARD', ready), redis.call('ZCARD', delayed)
local known = redis.call('HLEN', state)
local drained = known == 0
if drained then
  for _, other in ipairs(redis.call('SMEMBERS', producing)) do
    if deadline_of(sessions, other) > now then drained = false end
  end
end
local soonest = redis.call('ZRANGE', delayed, 0, 0, 'WITHSCORES')[2]
local expired = not grace and redis.call('ZRANGEBYSCORE', members, '-inf', int(now), 'LIMIT', 0, 1)[1] or ''
local reply = {{'ok', grace and 1 or 0, pending, waiting, known - pending - waiting,
  soonest and math.max(0, tonumber(soonest) - now) or -1, drained and 1 or 0, paused and 1 or 0, expired}}
if #granted > 0 then
  local packed, bodies = bulk_get(state, granted), bulk_get(payload, granted)
  for i, digest in ipairs(granted) do
    local record = packed[i] and cmsgpack.unpack(packed[i])
    if record and record[STATE] == 'L' and record[SESSION] == sid then
      for _, value in ipairs({digest, int(record[FENCE]), record[ATTEMPTS], record[DEATHS], record[SLOT], record[MARK],
        bodies[i] or ''}) do
        reply[#reply + 1] = value
      end
    end
  end
end
return reply
