-- Leases free resources of a pool to a session, and tells how the pool stands; wanting none is a look.
-- On the way up to 100 rests that are over and 100 resources that have expired are cleared away.
-- ARGV run_id, sid, n, {asks, reported, margin, grace, verb}: asks are {site, want} pairs ('' is any site); reported: the
--      server that the session has reported to; margin: ms of life a resource must have left; grace: ms for which what a
--      dead session held serves nobody; verb: the name of this lane of numbered calls
-- Returns {{'ok', grace, lease clock, wall clock, free, spotted, leased, resting, known, others that wait, share, yield, a
--          session that is over and to be reclaimed, or ''},
--          fence, {id, …}, {record, …}, {its rests for sites, packed, or '', …}, {ms for which each site asked for is
--          paused, …}, {id that is to be given back, or is lost, …}}
--         | {{'lost'}} | {{'report'}} | {{'older'}}
-- yield: how many leases the session is to give back as soon as their requests end, since others wait for their share
-- The same in each script of a pool, from here …
-- Shared by the scripts of a pool: records, the places of a resource, rests, the end of leases, events.
--
-- resources HASH id -> flag, strikes (2 digits), expiry (13: ms of the server's wall clock, 0: none), length of exit (3),
--         exit, body. flag is ' ', d: drained (nobody gets it), x: revoked (its holder is to give it back).
--         strikes: how often in a row it was broken; above 0 its next use is a probe.
-- free, spotted  ZSET id -> lease clock from which it may be handed out; spotted: it rests for some site
-- resting ZSET id -> lease clock until which it rests for all sites
-- leases  HASH id -> fence (16), since (13, wall clock), session;   held SET of the ids that one session has leased; an id
--         whose lease an operator ended stays in it until the session has heard of that
-- exits   HASH exit address -> the one identity behind it that is in play: free, spotted or leased
-- behind  ZSET of exit, \0, id: other identities that would be free;   expiries ZSET id -> expiry
-- rests   HASH id -> {site = {until, strikes}};   benched ZSET of site, \0, until (16), id: the same, by site
-- sites   HASH site -> {until, strikes, until when a probe of it counts}: sites that failed on half of the pool
-- members ZSET of the sessions that hold or wait -> when somebody last looked whether they live
-- over    HASH session -> when it was first seen to be over
-- waiting ZSET session -> since;   asks HASH session -> {arrivals it has tried, last call, leases wanted, leases held then}
-- recalls ZSET of session, \0, id: what a holder is to give back, or has lost
-- A resource is in exactly one of leases, free, spotted, behind, resting, or in none of them: drained or revoked, aside.
local clock, sessions, session, meta, resources, free = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local spotted, resting, leases, exits, behind = KEYS[7], KEYS[8], KEYS[9], KEYS[10], KEYS[11]
local expiries, rests, benched, sites, members = KEYS[12], KEYS[13], KEYS[14], KEYS[15], KEYS[16]
local over, waiting, asks, recalls, events = KEYS[17], KEYS[18], KEYS[19], KEYS[20], KEYS[21]
local held, held_by_other = KEYS[22], KEYS[23]

local PLAIN, DRAINED, REVOKED, NEVER = ' ', 'd', 'x', '0000000000000'
local FIRST_OF_EXIT, FIRST_OF_HOLDER = 20, 30
local EVENTS = 100000                    -- about as many are kept
local MOVES = 100                        -- at most so many are moved along the way of a call

local now, wall, micros = advance(clock)
local function moment(milliseconds) return string.format('%013.0f', milliseconds) end
local at_once = moment(wall)
local arrivals, told = 0, {}

local function flag_of(value) return string.sub(value, 1, 1) end
local function strikes_of(value) return tonumber(string.sub(value, 2, 3)) end
local function expiry_of(value) return tonumber(string.sub(value, 4, 16)) end
local function exit_of(value) return string.sub(value, FIRST_OF_EXIT, 19 + tonumber(string.sub(value, 17, 19))) end
local function body_of(value) return string.sub(value, 20 + tonumber(string.sub(value, 17, 19))) end
local function has_expired(value, by)
  local expiry = string.sub(value, 4, 16)
  return expiry <= by and expiry ~= NEVER
end

local function resource(flag, strikes, expiry, exit, body)
  return string.format('%s%02d%s%03d', flag, math.min(strikes, 99), moment(expiry), #exit) .. exit .. body
end

local function holder_of(lease) return string.sub(lease, FIRST_OF_HOLDER) end
local function is_lease_of(lease, sid, fence) return is_held(lease, fence) and holder_of(lease) == sid end

local function of(first) return '[' .. first .. '\0', '(' .. first .. '\1' end

local function count_of(key, first) return redis.call('ZLEXCOUNT', key, of(first)) end

-- Who, what, why and under which fence, for people; one entry for all that a call did alike. Returns where ids go.
local function telling(what, sid, fence, why)
  local key = what .. '\0' .. sid .. '\0' .. fence .. '\0' .. why
  if not told[key] then
    told[key] = {what, sid, fence, why}
    told[#told + 1] = told[key]
  end
  return told[key]
end

local function tell(what, sid, fence, why, id) table.insert(telling(what, sid, fence, why), id) end

local function finish()
  if arrivals > 0 then redis.call('HINCRBY', meta, 'arrivals', arrivals) end
  local node = #told > 0 and redis.call('HGET', session, 'node') or ''
  for _, event in ipairs(told) do
    redis.call('XADD', events, 'MAXLEN', '~', EVENTS, '*', 'what', event[1], 'session', event[2], 'node', node,
      'fence', event[3], 'why', event[4], 'ids', table.concat(event, ' ', 5))
  end
end

-- Comes into play, to be handed out from `from` on; behind its exit if another identity is in play there.
local function enter(id, value, from)
  local exit = exit_of(value)
  if exit ~= '' and redis.call('HSETNX', exits, exit, id) == 0 and redis.call('HGET', exits, exit) ~= id then
    redis.call('ZADD', behind, 0, exit .. '\0' .. id)
    return
  end
  redis.call('ZADD', redis.call('HEXISTS', rests, id) == 1 and spotted or free, int(from), id)
  arrivals = arrivals + 1
end

-- Leaves its exit to the next identity behind it, in their order and round again.
local function vacate(id, value)
  local exit = exit_of(value)
  if exit == '' then return end
  redis.call('ZREM', behind, exit .. '\0' .. id)
  if redis.call('HGET', exits, exit) ~= id then return end
  redis.call('HDEL', exits, exit)
  local low, high = of(exit)
  local following = redis.call('ZRANGEBYLEX', behind, '(' .. exit .. '\0' .. id, high, 'LIMIT', 0, 1)[1]
    or redis.call('ZRANGEBYLEX', behind, low, high, 'LIMIT', 0, 1)[1]
  if not following then return end
  redis.call('ZREM', behind, following)
  local other = string.sub(following, #exit + 2)
  enter(other, redis.call('HGET', resources, other), now)
end

local function leave(id, value)
  redis.call('ZREM', free, id)
  redis.call('ZREM', spotted, id)
  redis.call('ZREM', resting, id)
  vacate(id, value)
end

local function site_rests(id)
  local packed = redis.call('HGET', rests, id)
  return packed and cmsgpack.unpack(packed) or {}
end

local function bench_member(id, site, mark) return site .. '\0' .. string.format('%016.0f', mark[1]) .. id end

-- Sets (or, without mark, ends) the rest of a resource for one site.
local function bench(id, site, mark)
  local marks = site_rests(id)
  if marks[site] then redis.call('ZREM', benched, bench_member(id, site, marks[site])) end
  marks[site] = mark
  if mark then redis.call('ZADD', benched, 0, bench_member(id, site, mark)) end
  if next(marks) then
    redis.call('HSET', rests, id, cmsgpack.pack(marks))
  else
    redis.call('HDEL', rests, id)
  end
end

local function clear_rests(id)
  for site, mark in pairs(site_rests(id)) do redis.call('ZREM', benched, bench_member(id, site, mark)) end
  redis.call('HDEL', rests, id)
end

local function vanish(id, value, why)
  leave(id, value)
  clear_rests(id)
  redis.call('HDEL', resources, id)
  redis.call('ZREM', expiries, id)
  tell('gone', '', '', why, id)
end

-- What nobody holds any more finds its place; `from`: when it may be handed out again.
local function come_back(id, value, from)
  if has_expired(value, at_once) then return vanish(id, value, 'expired') end
  vacate(id, value)
  if flag_of(value) == PLAIN then enter(id, value, from) end
end

local function end_lease(id, sid, held_of)
  redis.call('HDEL', leases, id)
  redis.call('SREM', held_of, id)
  redis.call('ZREM', recalls, sid .. '\0' .. id)
end

local function rest_for_all(id, value, until_when)
  vacate(id, value)
  if has_expired(value, at_once) then return vanish(id, value, 'expired') end
  if flag_of(value) == PLAIN then redis.call('ZADD', resting, int(until_when), id) end
end

-- A session that neither holds nor waits.
local function forget(sid)
  redis.call('ZREM', members, sid)
  redis.call('ZREM', waiting, sid)
  redis.call('HDEL', asks, sid)
end

-- Of what is missing from sessions the time of its end is unknown: the grace counts from when it is seen to be over.
-- A session that closed had nothing in flight.
local function is_to_be_reclaimed(sid, in_grace, pause)
  local deadline = redis.call('ZSCORE', sessions, sid)
  if deadline and tonumber(deadline) > now then return false end
  if deadline == '0' then return true end
  if in_grace then return false end
  redis.call('HSETNX', over, sid, int(tonumber(deadline or now)))
  return tonumber(redis.call('HGET', over, sid)) + pause <= now
end
-- … to here.

local run_id, sid, n, ask = ARGV[1], ARGV[2], tonumber(ARGV[3]), cmsgpack.unpack(ARGV[4])
local SEEN, TENURE, PROBE = 3000, 1000, 30000 -- ms: a waiter that asks counts; a lease before it rotates; a probe of a site
local LOOKED, RIVALS = 4, 100                -- sessions whose life is looked at, waiters that are counted, a call


local _, grace = generation(clock, sessions, run_id, now)
if deadline_of(sessions, sid) <= now then return {{'lost'}} end
if ask.reported ~= run_id then return {{'report'}} end
local before = replay(session, ask.verb, n)
if before == 'older' then return {{'older'}} end

local function clear_away()
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', expiries, '-inf', int(wall), 'LIMIT', 0, MOVES)) do
    if redis.call('HEXISTS', leases, id) == 1 then
      redis.call('ZREM', expiries, id)
    else
      vanish(id, redis.call('HGET', resources, id), 'expired')
    end
  end
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', resting, '-inf', int(now), 'LIMIT', 0, MOVES)) do
    redis.call('ZREM', resting, id)
    enter(id, redis.call('HGET', resources, id), now)
  end
end

local function find_expired()
  for _, other in ipairs(redis.call('ZRANGE', members, 0, LOOKED - 1)) do
    if is_to_be_reclaimed(other, grace, ask.grace) then return other end
    redis.call('ZADD', members, int(now), other)
  end
  return ''
end

clear_away()
local expired = find_expired()

local picked, values, marks = {}, {}, {}
local opens, pauses, probes, wanted = {}, {}, {}, 0

-- How many leases a site may serve now: none while it is paused, and one when the pause is over, to see whether it is.
local function open_site(i, site, count)
  local packed = redis.call('HGET', sites, site)
  opens[i], pauses[i] = count, 0
  if not packed then return end
  local until_when, strikes, probe = unpack(cmsgpack.unpack(packed))
  pauses[i] = math.max(0, until_when - now, probe - now)
  opens[i] = pauses[i] > 0 and 0 or math.min(count, 1)
  probes[i] = cmsgpack.pack({until_when, strikes, now + PROBE})
end

for i, pair in ipairs(ask.asks) do
  open_site(i, pair[1], pair[2])
  wanted = wanted + opens[i]
end
local holds = redis.call('SCARD', held)
if wanted + holds > 0 then redis.call('ZADD', members, 'NX', int(now), sid) end

local too_soon = moment(wall + ask.margin)
local seen_arrivals = (tonumber(redis.call('HGET', meta, 'arrivals')) or 0) + arrivals
local clean = redis.call('ZCOUNT', free, '-inf', int(now))
local ready = clean + redis.call('ZCOUNT', spotted, '-inf', int(now))
local in_play = redis.call('ZCARD', free) + redis.call('HLEN', leases)
local claimants = math.max(1, redis.call('ZCARD', members))
local share = math.max(1, math.floor(in_play / claimants))

-- The others that wait: how many; how many of them have not had a chance yet at what is free, and are those before us;
-- how many leases those below their share miss.
local function count_rivals()
  local rivals, untried, ahead, missing, is_before = 0, 0, 0, 0, true
  local others = redis.call('ZRANGE', waiting, 0, RIVALS - 1)
  for i, packed in ipairs(bulk_get(asks, others)) do
    local other, tried, seen, wants, has = others[i], unpack(cmsgpack.unpack(packed))
    if other == sid then
      is_before = false
    elseif seen + SEEN > now and deadline_of(sessions, other) > now then
      rivals = rivals + 1
      if tried < seen_arrivals then
        untried = untried + 1
        if is_before then ahead = ahead + 1 end
      end
      missing = missing + math.max(0, math.min(wants, share - has))
    end
  end
  return rivals, untried, ahead, missing
end
local rivals, untried, ahead, missing = count_rivals()

-- Takes up to count out of a set of free resources, but for those with too little life left.
local function pick_from(set, ids, count, is_fit)
  local taken, size, total = {}, 0, #picked
  for i, value in ipairs(bulk_get(resources, ids)) do
    if size == count then break end
    local id = ids[i]
    if has_expired(value, too_soon) then
      vanish(id, value, 'expired')
    elseif not is_fit or is_fit(id) then
      size, total = size + 1, total + 1
      taken[size], picked[total], values[total] = id, id, value
      marks[total] = is_fit and redis.call('HGET', rests, id) or ''
    end
  end
  bulk('ZREM', set, taken)
  return size
end

local function due_at(site)
  local low, ids = site .. '\0', {}
  local high = '(' .. low .. string.format('%016.0f', now + 1)
  for _, member in ipairs(redis.call('ZRANGEBYLEX', benched, '[' .. low, high, 'LIMIT', 0, 8)) do
    local id = string.sub(member, #low + 17)
    if redis.call('ZSCORE', spotted, id) then ids[#ids + 1] = id end
  end
  return ids
end

-- For one site: a resource whose rest has ended, to be probed; then what rests nowhere; then what rests for others.
-- Where the site itself is probed, what rests nowhere comes first. Returns how many were picked, and how many of free.
local function pick(site, count, limit, is_probe)
  local function may_serve(id)
    local mark = site_rests(id)[site]
    return (not mark or mark[1] <= now) and tonumber(redis.call('ZSCORE', spotted, id)) <= now
  end
  local probed, plain = is_probe and 0 or pick_from(spotted, due_at(site), 1, may_serve), 0
  for _ = 1, 4 do
    local want = math.min(count - probed, limit) - plain
    local ids = want > 0 and redis.call('ZRANGEBYSCORE', free, '-inf', int(now), 'LIMIT', 0, want) or {}
    if #ids == 0 then break end
    plain = plain + pick_from(free, ids, want)
  end
  local left = count - probed - plain
  if left == 0 then return count, plain end
  return count - left + pick_from(spotted, redis.call('ZRANDMEMBER', spotted, 2 * left + 16), left, may_serve), plain
end

-- How many leases the session may have now, if others wait; how many of the free ones are for those before it.
local function allowance()
  if untried > 0 then return math.max(0, math.min(wanted, share - holds)), ahead end
  if rivals > 0 then return math.min(wanted, math.max(1, share - holds, math.floor(ready / (rivals + 1)))), 0 end
  return wanted, 0
end

local function grant()
  local allowed, reserved = allowance()
  local limit = math.max(0, clean - reserved)
  local is_behind = ready - reserved < allowed
  allowed = math.max(0, math.min(allowed, ready - reserved))
  for i, pair in ipairs(ask.asks) do
    local site, count = pair[1], math.min(opens[i], allowed)
    if count > 0 then
      local got, plain = pick(site, count, limit, probes[i])
      allowed, limit = allowed - got, limit - plain
      if got > 0 and probes[i] then redis.call('HSET', sites, site, probes[i]) end
    end
  end
  return is_behind and reserved > 0
end

-- Who did not get all it wanted waits, at its old place if it got nothing.
local function stand_in_line(is_behind)
  if #picked >= wanted then
    redis.call('ZREM', waiting, sid)
    redis.call('HDEL', asks, sid)
    return
  end
  local known = redis.call('HGET', asks, sid)
  local tried = is_behind and (known and cmsgpack.unpack(known)[1] or -1) or seen_arrivals
  if #picked > 0 then redis.call('ZREM', waiting, sid) end
  redis.call('ZADD', waiting, 'NX', int(now), sid)
  redis.call('HSET', asks, sid, cmsgpack.pack({tried, now, wanted - #picked, holds}))
end

local fence = '0'
local function lease_picked()
  if #picked == 0 then return end
  fence = next_fence(clock, micros)
  local lease, leased, event = fence .. at_once .. sid, {}, telling('take', sid, fence, '')
  for i, id in ipairs(picked) do
    leased[2 * i - 1], leased[2 * i], event[4 + i] = id, lease, id
  end
  hold(leases, leased)
  bulk('SADD', held, picked)
  holds = holds + #picked
end

-- What an earlier call granted, as far as the session still holds it under the same fence.
local function granted_before()
  local ids
  fence, ids = unpack(cmsgpack.unpack(before))
  for i, value in ipairs(bulk_get(resources, ids)) do
    if value and is_lease_of(redis.call('HGET', leases, ids[i]), sid, fence) then
      picked[#picked + 1], values[#values + 1] = ids[i], value
      marks[#marks + 1] = redis.call('HGET', rests, ids[i]) or ''
    end
  end
end

if before then
  granted_before()
else
  if not grace then
    local is_behind = grant()
    lease_picked()
    stand_in_line(is_behind)
    if holds == 0 and wanted == 0 then redis.call('ZREM', members, sid) end
  end
  -- Also where nothing was granted: a copy of this call that comes late must not take what nobody will hear of.
  remember(session, ask.verb, n, cmsgpack.pack({fence, picked}))
end

-- How many leases others have a right to: what is above the share; with fewer resources than sessions, each in turn.
local function to_yield()
  missing = missing - redis.call('ZCOUNT', free, '-inf', int(now))
  if missing <= 0 or holds == 0 then return 0 end
  if holds > share then return math.min(missing, holds - share) end
  if in_play >= claimants then return 0 end
  local lease = redis.call('HGET', leases, redis.call('SRANDMEMBER', held))
  local since = lease and tonumber(string.sub(lease, FENCE + 1, FIRST_OF_HOLDER - 1)) or 0
  return math.abs(wall - since) >= TENURE and 1 or 0
end

local function recalled()
  local low, high = of(sid)
  local ids = redis.call('ZRANGEBYLEX', recalls, low, high, 'LIMIT', 0, MOVES)
  for i, member in ipairs(ids) do ids[i] = string.sub(member, #sid + 2) end
  return ids
end

local yield = to_yield()
finish()
return {{'ok', grace and 1 or 0, now, wall, redis.call('ZCARD', free), redis.call('ZCARD', spotted),
  redis.call('HLEN', leases), redis.call('ZCARD', resting), redis.call('HLEN', resources), rivals, share, yield, expired},
  fence, picked, values, marks, pauses, recalled()}
