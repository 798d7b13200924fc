-- Grants permits of one counter to a session, which may spend them until the slice ends, and takes unspent ones back.
-- KEYS clock sessions rate limits; limits: HASH rule, \0, length -> a limit that an operator set in the place of it
-- ARGV run_id, {sid, n, previous, name, rule, limit, length, days, shard, shards, sliding, pace, want, back, recent}:
--      days: the days of a time zone, in ms, {} for windows that need none; shard: of the limit, from 0; sliding: slots
--      after the present one that a slice lasts, 0: a fixed window; back: {until, number, …}: permits that will not be
--      spent; recent: {n, until, number, …}: what was granted lately, lest a server that lost its tail forgets it
-- Returns {'ok', until, granted, ms left of the slice, ms after which there may be more, permits that nobody has, limit,
--      other sessions that wait, grace} | {'days', wall} | {'lost'} | {'older'}
-- Grants are counted, not tries. The same n again changes nothing, and is told the same.
local run_id, ask = ARGV[1], cmsgpack.unpack(ARGV[2])
local sid, length, step = ask.sid, ask.length, ask.length / SLOTS
local _, in_grace = generation(clock, sessions, run_id, now)
if deadline_of(sessions, sid) <= now then return {'lost'} end
local from, to = window_of(length, ask.days)
if not from then return {'days', wall} end
local start, finish, is_new = turn(from, to, length)
local slot = ask.sliding > 0 and sliding_slot(length, tonumber(stored[6]))
local me = people[sid] or people[ask.previous] or {0, 0, 0, 0, 0, 0, wall, ask.limit}
if ask.n < me[N] then return {'older'} end
if ask.previous ~= '' then people[ask.previous] = nil end
people[sid] = me

local function count_in(ends, permits)
  -- A server that forgot more than it was told of does not take back what it does not count.
  local change = math.max(permits, -me[HAD])
  if ends == finish or slot then count, me[HAD] = count + change, me[HAD] + change end
  if slot then booked[ends] = math.max(0, (booked[ends] or 0) + permits) end
end

local whole = limit_of(ask, now)
local most = math.floor(whole / ask.shards) + (ask.shard < whole % ask.shards and 1 or 0)
if ask.n > me[N] then
  for i = 1, #ask.recent, 3 do
    if ask.recent[i] > me[N] then count_in(ask.recent[i + 1], ask.recent[i + 2]) end
  end
  for i = 1, #ask.back, 2 do count_in(ask.back[i], -ask.back[i + 1]) end
end
local used, wait = count, finish - wall
if slot then used, wait = sliding_use(slot, length) end
local room, waiting = in_grace and 0 or most - used, 0
if ask.pace == 1 then room, wait = paced(room, most, wait, start, length) end
if ask.n > me[N] then
  local share, kept
  share, kept, waiting = claims(sid, most, length, finish)
  local granted = grant(ask.want, room, share - me[HAD], kept, waiting)
  me[N], me[GRANTED], me[UNTIL] = ask.n, granted, slot and slot + ask.sliding or finish
  if granted > 0 then count_in(me[UNTIL], granted) end
  room, me[UNMET], me[SEEN], me[LIMIT] = room - granted, ask.want - granted, wall, ask.limit
end
keep(start, finish, slot, whole, ask, is_new)
local ends = slot and (me[UNTIL] + 1) * step or me[UNTIL]
local left = math.floor(ends - micros / 1000)
return {'ok', int(me[UNTIL]), me[GRANTED], left, math.max(1, wait), math.max(0, room), whole, waiting, in_grace and 1 or 0}
