-- Shared by the scripts of rate limits: the window that counts, who asks, and what is kept for whom.
--
-- rate HASH of one counter, which is one limit on one key, or a shard of it: start, finish: the window, in ms of the
--      server's wall clock; count: permits granted in it, less those that came back; people: {session -> what follows};
--      slot, booked: of a sliding limit, see there; name, limit, length: for people
-- A session is {n of its last call, permits granted by that, until when, had in this window, had in the one before, how
--      many it asked for in vain, when it called last, its limit}.
local clock, sessions, rate, words = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local N, GRANTED, UNTIL, HAD, BEFORE, UNMET, SEEN, LIMIT = 1, 2, 3, 4, 5, 6, 7, 8
local SLOTS = 40                         -- of a sliding window
local RECENT, SILENT = 3000, 60000       -- ms for which what was asked for in vain counts, for which a session does

local now, wall, micros = advance(clock)
local stored = redis.call('HMGET', rate, 'start', 'finish', 'count', 'people', 'booked', 'slot')
local count = tonumber(stored[3]) or 0
local people = stored[4] and cmsgpack.unpack(stored[4]) or {}
local booked = stored[5] and cmsgpack.unpack(stored[5]) or {}

local function is_recent(moment, age) return math.abs(wall - moment) <= age end

-- The window that the clock is in: of the boundaries that were sent, or a multiple of its length.
local function window_of(length, bounds)
  for i = 1, #bounds - 1 do
    if bounds[i] <= wall and wall < bounds[i + 1] then return bounds[i], bounds[i + 1] end
  end
  if #bounds == 0 then return wall - wall % length, wall - wall % length + length end
end

-- Begins another window if it is time; a clock that went back by less than a window begins none, so nothing is granted
-- twice. Whoever was silent for long is forgotten.
local function turn(start, finish, length)
  local before, its_end = tonumber(stored[1]), tonumber(stored[2])
  if before and before > start and before - wall <= length then return before, its_end, false end
  if before == start then return start, finish, false end
  count = 0
  for sid, its in pairs(people) do
    its[BEFORE], its[HAD] = its_end == start and its[HAD] or 0, 0
    if its[BEFORE] == 0 and not is_recent(its[SEEN], SILENT) then people[sid] = nil end
  end
  return start, finish, true
end

-- The boundaries say when a window is over, so no expiry that was lost or is late can prolong one.
local function keep(start, finish, slot, whole, ask, is_new)
  redis.call('HSET', rate, 'start', int(start), 'finish', int(finish), 'count', int(count),
    'people', cmsgpack.pack(people), 'limit', int(whole), 'length', int(ask.length))
  if slot then redis.call('HSET', rate, 'slot', int(slot), 'booked', cmsgpack.pack(booked)) end
  if is_new or redis.call('PTTL', rate) < 0 then
    redis.call('HSET', rate, 'name', ask.name)
    redis.call('PEXPIRE', rate, int(finish - wall + 2 * ask.length + SILENT))
  end
end
