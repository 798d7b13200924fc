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
-- sites   HASH site -> {until, strikes, until when a probe of it counts, who probes, 1 if it refused}: sites that failed on
--         half of the pool; that did not refuse gave no answer
-- views   HASH id -> {site = {lease clock at which it was last said to serve the site, 0: never; suspect}}: what a holder
--         knows of it and the next one should; suspect: the URL that was refused last, hashed, with nothing served since
-- members ZSET of the sessions that hold or wait -> when somebody last looked whether they live
-- over    HASH session -> when it was first seen to be over
-- waiting ZSET session -> since;   asks HASH session -> {arrivals it has tried, last call, leases wanted, leases held then}
-- recalls ZSET of session, \0, id: what a holder is to give back, or has lost
-- A resource is in exactly one of leases, free, spotted, behind, resting, or in none of them: drained or revoked, aside.
local clock, sessions, session, meta, resources, free = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local spotted, resting, leases, exits, behind = KEYS[7], KEYS[8], KEYS[9], KEYS[10], KEYS[11]
local expiries, rests, benched, sites, members = KEYS[12], KEYS[13], KEYS[14], KEYS[15], KEYS[16]
local over, waiting, asks, recalls, events = KEYS[17], KEYS[18], KEYS[19], KEYS[20], KEYS[21]
local views, held, held_by_other = KEYS[22], KEYS[23], KEYS[24]

local PLAIN, DRAINED, REVOKED, NEVER = ' ', 'd', 'x', '0000000000000'
local FIRST_OF_EXIT, FIRST_OF_HOLDER = 20, 30
local EVENTS = 100000                    -- about as many are kept
local MOVES = 100                        -- at most so many are moved along the way of a call
local SITES = 3                          -- at so many sites at once it is the resource that is at fault

local now, wall, micros = advance(clock)
local MOMENT = IS_WIDE and '%013d' or '%013.0f'
local function moment(milliseconds) return string.format(MOMENT, milliseconds) end
local at_once = moment(wall)
local arrivals, told = 0, {}
-- What is not the same for all kinds of resources: filled by the part that follows, _proxy or _account.
local kind = {}

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

local function rest(strikes, first, longest, share)
  local whole = math.min(longest, first * 2 ^ math.min(strikes - 1, 30))
  return math.floor(now + whole * (1 - share / 4000))
end

-- Comes into play, to be handed out from `from` on; behind its exit if another identity is in play there.
local function enter(id, value, from)
  local exit = exit_of(value)
  if exit ~= '' and redis.call('HSETNX', exits, exit, id) == 0 and redis.call('HGET', exits, exit) ~= id then
    redis.call('ZADD', behind, 0, exit .. '\0' .. id)
    return
  end
  kind.place(id, from)
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

-- Was it freed by an operator while its holder had it? For until its rest is over, that may not have heard of it.
local function is_in_doubt(id, value)
  return kind.is_doubtful(id, value) and redis.call('ZSCORE', resting, id) ~= false
end

local function leave(id, value)
  redis.call('ZREM', free, id)
  redis.call('ZREM', spotted, id)
  redis.call('ZREM', resting, id)
  kind.leave(id)
  vacate(id, value)
end

local function site_rests(id)
  local packed = redis.call('HGET', rests, id)
  return packed and cmsgpack.unpack(packed) or {}
end

local function bench_member(id, site, mark) return site .. '\0' .. string.format(PADDED, mark[1]) .. id end

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

-- What is held against a resource, and what is known of how it served.
local function clear_rests(id)
  for site, mark in pairs(site_rests(id)) do redis.call('ZREM', benched, bench_member(id, site, mark)) end
  redis.call('HDEL', rests, id)
  redis.call('HDEL', views, id)
end

local function vanish(id, value, why)
  leave(id, value)
  clear_rests(id)
  redis.call('HDEL', resources, id)
  redis.call('ZREM', expiries, id)
  kind.forget(id)
  tell('gone', '', '', why, id)
end

-- Until when a resource rests for so many sites that it rests for all; 0: it does not.
local function banned_until(id)
  local ends = {}
  for _, mark in pairs(site_rests(id)) do ends[#ends + 1] = mark[1] end
  if #ends < SITES then return 0 end
  table.sort(ends, function(one, other) return one > other end)
  return ends[SITES]
end

local function end_lease(id, sid, held_of)
  kind.drop({id}, sid)
  redis.call('SREM', held_of, id)
  redis.call('ZREM', recalls, sid .. '\0' .. id)
end

local function rest_for_all(id, value, until_when)
  vacate(id, value)
  if has_expired(value, at_once) then return vanish(id, value, 'expired') end
  if flag_of(value) == PLAIN then redis.call('ZADD', resting, int(until_when), id) end
end

local function with_strikes(value, strikes)
  return resource(flag_of(value), strikes, expiry_of(value), exit_of(value), body_of(value))
end

-- What its holder has no more finds its place; `from`: when it may be handed out again.
local function come_back(id, value, from)
  if kind.comes_back(id, value, from) then return end
  if has_expired(value, at_once) then return vanish(id, value, 'expired') end
  local until_when = banned_until(id)
  if until_when > now and flag_of(value) == PLAIN then
    value = with_strikes(value, strikes_of(value) + 1)
    redis.call('HSET', resources, id, value)
    return rest_for_all(id, value, until_when)
  end
  vacate(id, value)
  if flag_of(value) == PLAIN then enter(id, value, from) end
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
