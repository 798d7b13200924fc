-- A session says which resources it holds: before it takes any, after the server restarted, or after it was lost and opened
-- anew (previous). What is its own stays; what the lost one has still, or is free, is leased to it under a new fence;
-- all else is lost to it. What the store says it holds but it did not report comes back.
-- ARGV run_id, sid, n, {ids, fences, previous, verb}
-- Returns run_id and the fences now held, one for each entry, 0 where it is lost, joined by spaces; or 'lost'; or 'older'
-- The same in each script of a pool, from here …
-- Shared by the scripts of a pool: records, the places of a resource, rests, the end of leases, events.
--
-- resources HASH id -> flag, strikes (2 digits), expiry (13: ms of the server's wall clock, 0: none), length of exit (3),
--         exit, body. flag is ' ', d: drained (nobody gets it), x: revoked (its holder is to give it back).
--         strikes: how often in a row it was broken; above 0 its next use is a probe.
-- free, spotted  ZSET id -> lease clock from which it may be handed out; spotted: it rests for some site
-- resting ZSET id -> lease clock until which it rests for all sites
-- leases  HASH id -> fence (16), since (13, wall clock), session;   held ZSET of session, \0, id
-- exits   HASH exit address -> the one identity behind it that is in play: free, spotted or leased
-- behind  ZSET of exit, \0, id: other identities that would be free;   expiries ZSET id -> expiry
-- rests   HASH id -> {site = {until, strikes}};   benched ZSET of site, \0, until (16), id: the same, by site
-- sites   HASH site -> {until, strikes, until when a probe of it counts}: sites that failed on half of the pool
-- members ZSET of the sessions that hold or wait -> when somebody last looked whether they live
-- over    HASH session -> when it was first seen to be over
-- waiting ZSET session -> since;   asks HASH session -> {arrivals it has tried, last call, how many it wants}
-- recalls ZSET of session, \0, id: what a holder is to give back, or has lost
-- A resource is in exactly one of leases, free, spotted, behind, resting, or in none of them: drained or revoked, aside.
local clock, sessions, session, meta, resources, free = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local spotted, resting, leases, held, exits, behind = KEYS[7], KEYS[8], KEYS[9], KEYS[10], KEYS[11], KEYS[12]
local expiries, rests, benched, sites, members = KEYS[13], KEYS[14], KEYS[15], KEYS[16], KEYS[17]
local over, waiting, asks, recalls, events = KEYS[18], KEYS[19], KEYS[20], KEYS[21], KEYS[22]

local PLAIN, DRAINED, REVOKED = ' ', 'd', 'x'
local EVENTS = 100000                    -- about as many are kept
local MOVES = 100                        -- at most so many are moved along the way of a call

local now, wall, micros = advance(clock)
local arrivals, told = 0, {}

local function flag_of(value) return string.sub(value, 1, 1) end
local function strikes_of(value) return tonumber(string.sub(value, 2, 3)) end
local function expiry_of(value) return tonumber(string.sub(value, 4, 16)) end
local function exit_of(value) return string.sub(value, 20, 19 + tonumber(string.sub(value, 17, 19))) end
local function body_of(value) return string.sub(value, 20 + tonumber(string.sub(value, 17, 19))) end
local function has_expired(value, margin)
  local expiry = expiry_of(value)
  return expiry > 0 and expiry - margin <= wall
end

local function resource(flag, strikes, expiry, exit, body)
  return string.format('%s%02d%013.0f%03d', flag, math.min(strikes, 99), expiry, #exit) .. exit .. body
end

local function lease_of(id, sid, fence) -- whether the session holds it under this fence
  local lease = redis.call('HGET', leases, id)
  return lease and string.sub(lease, 1, FENCE) == fence and string.sub(lease, FENCE + 14) == sid
end

local function of(first) return '[' .. first .. '\0', '(' .. first .. '\1' end

local function ids_of(key, sid, count)
  local low, high = of(sid)
  local ids = redis.call('ZRANGEBYLEX', key, low, high, 'LIMIT', 0, count)
  for i, member in ipairs(ids) do ids[i] = string.sub(member, #sid + 2) end
  return ids
end

local function count_of(key, first) return redis.call('ZLEXCOUNT', key, of(first)) end

-- Who, what, why and under which fence, for people; one entry for all that a call did alike.
local function tell(what, sid, fence, why, id)
  local key = table.concat({what, sid, fence, why}, '\0')
  if not told[key] then
    told[key] = {what, sid, fence, why}
    told[#told + 1] = told[key]
  end
  table.insert(told[key], id)
end

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
  if has_expired(value, 0) then return vanish(id, value, 'expired') end
  vacate(id, value)
  if flag_of(value) == PLAIN then enter(id, value, from) end
end

local function end_lease(id, sid)
  redis.call('HDEL', leases, id)
  redis.call('ZREM', held, sid .. '\0' .. id)
  redis.call('ZREM', recalls, sid .. '\0' .. id)
end

local function rest_for_all(id, value, until_when)
  vacate(id, value)
  if has_expired(value, 0) then return vanish(id, value, 'expired') end
  if flag_of(value) == PLAIN then redis.call('ZADD', resting, int(until_when), id) end
end

-- A session that neither holds nor waits.
local function forget(sid)
  redis.call('ZREM', members, sid)
  redis.call('ZREM', waiting, sid)
  redis.call('HDEL', asks, sid)
  redis.call('HDEL', over, sid)
end
-- … to here.

local run_id, sid, n = ARGV[1], ARGV[2], tonumber(ARGV[3])
local ids, fences, previous, verb = unpack(cmsgpack.unpack(ARGV[4]))

generation(clock, sessions, run_id, now)
if deadline_of(sessions, sid) <= now then return 'lost' end
local before = replay(session, verb, n)
if before then return before end

local fence, reply, kept = next_fence(clock, micros), {}, {}

local function lease_anew(id, why)
  redis.call('HSET', leases, id, fence .. string.format('%013.0f', wall) .. sid)
  redis.call('ZADD', held, 0, sid .. '\0' .. id)
  tell('take', sid, fence, why, id)
  return fence
end

local function free_for_it(id, value)
  if has_expired(value, 0) or redis.call('HEXISTS', leases, id) == 1 then return false end
  return redis.call('ZREM', free, id) + redis.call('ZREM', spotted, id) > 0
end

for i, id in ipairs(ids) do
  local value = redis.call('HGET', resources, id)
  reply[i] = '0'
  if value and lease_of(id, sid, fences[i]) then
    reply[i] = fences[i]
  elseif value and previous ~= '' and lease_of(id, previous, fences[i]) then
    end_lease(id, previous)
    reply[i] = lease_anew(id, 'kept')
  elseif value and free_for_it(id, value) then
    reply[i] = lease_anew(id, 'reported')
  end
  if reply[i] ~= '0' then kept[id] = true end
end

for _, id in ipairs(ids_of(held, sid, -1)) do
  if not kept[id] then
    local lease = redis.call('HGET', leases, id)
    end_lease(id, sid)
    tell('back', sid, string.sub(lease, 1, FENCE), 'unreported', id)
    come_back(id, redis.call('HGET', resources, id), now)
  end
end
if next(kept) then redis.call('ZADD', members, 'NX', int(now), sid) end
local answer = run_id .. ' ' .. table.concat(reply, ' ')
remember(session, verb, n, answer)
finish()
return answer
