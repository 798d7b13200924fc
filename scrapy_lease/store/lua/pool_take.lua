-- Leases free resources of a pool to a session, and tells how the pool stands; wanting none is a look.
-- On the way up to 100 each of rests that are over, resources that have expired and ties that have are cleared away.
-- ARGV run_id, sid, n, {asks, ties, ttl, reported, margin, grace, owned, answered, verb}:
--      asks are {site, want} pairs ('' is any site); ties are {key, number of its ask, offer, {id not to be tied to, …}}:
--      each a sticky key that wants, on top of its ask, the resource it is tied to, or any; offer: a lease of the
--      session's it may be tied to instead, or ''; number 0: it is in use on what it offers, and only to be renewed; then
--      1 if it is tied for ever, and what is made for it (see admit), where it is to have nothing else; ttl: ms that a tie
--      lasts; reported: the server that the session has reported to; margin: ms of life a resource must have left; grace:
--      ms for which what a dead session held serves nobody; owned: 1 if all that the session asks for is made for keys;
--      answered: ms ago that the last answer came through the pool here, -1: none did; verb: the name of this lane of
--      numbered calls
-- Returns {{'ok', grace, lease clock, wall clock, free, spotted, leased, resting, known, others that wait, share, yield, silent,
--          a session that is over and to be reclaimed, or ''},
--          fence, {id, …}, {record, …}, {its rests for sites, packed, or '', …},
--          {what is known of how it served sites, packed, or nil, …}, {ms for which each site asked for is
--          paused, or -1: its pause is over, and a lease of the session is the probe of it, …}, {id that is to be given back, or is
--          lost, …}, {what each key is tied to, or '': nothing yet, …}}
--         | {{'lost'}} | {{'report'}} | {{'older'}}
-- yield: how many leases the session is to give back as soon as their requests end, since others wait for their share
-- silent: ms since the first failure that no answer through the pool, told by anybody, has followed; 0: there is none
local run_id, n = ARGV[1], tonumber(ARGV[3])
local SEEN, TENURE, PROBE = 3000, 1000, 30000 -- ms: a waiter that asks counts; a lease before it rotates; a probe of a site
local AGAIN = 1000                           -- ms until who waits for the probe of another session asks again
local LOOKED, RIVALS = 4, 100                -- sessions whose life is looked at, waiters that are counted, a call


local _, grace = generation(clock, sessions, run_id, now)
if deadline_of(sessions, sid) <= now then return {{'lost'}} end
if ask.reported ~= run_id then return {{'report'}} end
local before = replay(session, ask.verb, n)
if before == 'older' then return {{'older'}} end
if kind.begin(ask.account) == 'days' then return {{'days', wall}} end

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
local holds = redis.call('SCARD', held)

-- How many leases a site may serve now: none while it is paused, and one when the pause is over, to see whether it is.
-- To others the site stays paused meanwhile, but they may soon hear more; to the session that probes it is open, lest what
-- it leased for that lies idle.
local function open_site(i, site)
  local packed = redis.call('HGET', sites, site)
  opens[i], pauses[i] = kind.room(), 0
  if not packed then return end
  local until_when, strikes, probe, prober, refuses = unpack(cmsgpack.unpack(packed))
  local is_own = prober == sid and probe > now and holds > 0
  pauses[i] = math.max(0, until_when - now, prober ~= sid and math.min(probe - now, AGAIN) or 0)
  opens[i] = (pauses[i] > 0 or is_own) and 0 or math.min(1, kind.room())
  if is_own and pauses[i] == 0 then pauses[i] = -1 end
  probes[i] = cmsgpack.pack({until_when, strikes, now + PROBE, sid, refuses})
end

for i, pair in ipairs(ask.asks) do open_site(i, pair[1]) end
resolve_ties(pauses, before, grace)
for i, pair in ipairs(ask.asks) do wanted = wanted + math.min(opens[i], pair[2] + #wishes[i]) end
wanted = math.min(wanted, kind.most(holds))
if wanted + holds > 0 then redis.call('ZADD', members, 'NX', int(now), sid) end
if not before and not grace then kind.promote(wanted) end

local seen_arrivals = (tonumber(redis.call('HGET', meta, 'arrivals')) or 0) + arrivals
local clean = redis.call('ZCOUNT', free, '-inf', int(now))
local ready = clean + redis.call('ZCOUNT', spotted, '-inf', int(now))
local in_play = kind.in_play(clean)
local claimants = math.max(1, redis.call('ZCARD', members))
local share = math.max(1, math.floor(in_play / claimants))

-- When the last of what is free, or spotted, came to be handed out; its delay counts, as its arrival came before.
local function last_due(set)
  return tonumber(redis.call('ZREVRANGEBYSCORE', set, int(now), '-inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]) or 0
end

-- The others that wait: how many; how many of them have not had a chance yet at what is free, and are those before us;
-- how many leases those below their share miss.
local function count_rivals()
  local rivals, untried, ahead, missing, is_before = 0, 0, 0, 0, true
  -- What is made for keys is of no use to who has others: there is nothing to share.
  if not kind.is_scarce() or ask.owned == 1 then return 0, 0, 0, 0 end
  local others = redis.call('ZRANGE', waiting, 0, RIVALS - 1)
  local due = #others > 0 and math.max(last_due(free), last_due(spotted))
  for i, packed in ipairs(bulk_get(asks, others)) do
    local other, tried, seen, wants, has, tried_at = others[i], unpack(cmsgpack.unpack(packed))
    if other == sid then
      is_before = false
    elseif seen + SEEN > now and deadline_of(sessions, other) > now then
      rivals = rivals + 1
      if tried < seen_arrivals or tried_at < due then
        untried = untried + 1
        if is_before then ahead = ahead + 1 end
      end
      missing = missing + math.max(0, math.min(wants, share - has))
    end
  end
  return rivals, untried, ahead, missing
end
local rivals, untried, ahead, missing = count_rivals()

-- Takes up to count out of a set of free resources, but for those with too little life left, and for `left` of those that
-- would do; without is_fit all would. is_first: they are the first of their set. Returns how many, and whether others would
-- have done.
local function pick_from(set, ids, count, left, is_fit, is_first)
  local fit, records, most, found, is_whole = {}, {}, count + left, 0, true
  for i, value in ipairs(bulk_get(resources, ids)) do
    if found == most then break end
    local id = ids[i]
    if has_expired(value, too_soon) then
      vanish(id, value, 'expired')
      is_whole = false
    elseif (not is_fit or is_fit(id)) and kind.may_take(id) then
      found = found + 1
      fit[found], records[found] = id, value
    else
      is_whole = false
    end
  end
  local number, total = math.max(0, math.min(count, found - left)), #picked
  for i = 1, number do
    picked[total + i], values[total + i] = fit[i], records[i]
    marks[total + i] = is_fit and redis.call('HGET', rests, fit[i]) or ''
  end
  if is_first and is_whole and kind.is_quick and number > 0 then
    redis.call('ZREMRANGEBYRANK', set, 0, number - 1)
  else
    for i = number + 1, found do fit[i] = nil end
    kind.take_out(set, fit)
  end
  return number, found > number
end

local function due_at(site)
  local low, ids = site .. '\0', {}
  local high = '(' .. low .. string.format(PADDED, now + 1)
  for _, member in ipairs(redis.call('ZRANGEBYLEX', benched, '[' .. low, high, 'LIMIT', 0, 8)) do
    local id = string.sub(member, #low + 17)
    if redis.call('ZSCORE', spotted, id) then ids[#ids + 1] = id end
  end
  return ids
end

-- For one site: a resource whose rest has ended, to be probed; then what rests nowhere, up to limit; then what rests for
-- others, but for `left` of those that would do. Where the site itself is probed, what rests nowhere comes first.
-- Returns how many were picked, how many of free, and whether others would have done.
local function pick(site, count, limit, left, is_probe)
  local function may_serve(id)
    local mark = site_rests(id)[site]
    return (not mark or mark[1] <= now) and tonumber(redis.call('ZSCORE', spotted, id)) <= now
  end
  local is_first = is_probe or left > 0
  local probed, plain = is_first and 0 or pick_from(spotted, due_at(site), 1, 0, may_serve), 0
  for _ = 1, 4 do
    local want = math.min(count - probed, limit) - plain
    local ids = want > 0 and redis.call('ZRANGEBYSCORE', free, '-inf', int(now), 'LIMIT', 0, kind.sample(want)) or {}
    if #ids == 0 then break end
    plain = plain + pick_from(free, ids, want, 0, nil, true)
  end
  local rest = count - probed - plain
  if rest == 0 then return count, plain, false end
  local sample = redis.call('ZRANDMEMBER', spotted, 2 * (rest + left) + 16)
  local others, is_more = pick_from(spotted, sample, rest, left, may_serve)
  return probed + plain + others, plain, is_more
end

local function is_any() return true end

-- Picks what keys of an ask are tied to, as far as it is free and allowed. Returns how many were picked, how many of
-- free, the wishes of keys that are tied to nothing, and whether something was left for others.
local function pick_tied(i, allowed, limit, left)
  local got, plain, loose, is_kept = 0, 0, {}, false
  for _, wish in ipairs(wishes[i]) do
    local number, key, id, set = unpack(wish)
    if not set then
      loose[#loose + 1] = wish
    elseif set ~= AWAY and not redis.call('ZSCORE', set, id) then
      wanted = wanted - 1
      tie(number, key, id) -- picked for another key of this call
    elseif set ~= AWAY and got < math.min(allowed, opens[i]) then
      if set == free and plain < limit or set == spotted and left == 0 then
        got = got + pick_from(set, {id}, 1, 0, set == spotted and is_any)
        plain = plain + (set == free and 1 or 0)
        tie(number, key, id)
      else
        is_kept = true
      end
    end
  end
  return got, plain, loose, is_kept
end

local function tie_loose(loose, first)
  for i, wish in ipairs(loose) do
    if picked[first + i] then tie(wish[1], wish[2], picked[first + i]) end
  end
end

-- How many leases the session may have now, if others wait; how many of the free ones are for those before it.
local function allowance()
  if untried > 0 then return math.max(0, math.min(wanted, share - holds)), ahead end
  if rivals > 0 then return math.min(wanted, math.max(1, share - holds, math.floor(ready / (rivals + 1)))), 0 end
  return wanted, 0
end

-- Returns whether something was left for those before us that would have done.
local function grant()
  local allowed, reserved = allowance()
  local limit, left, is_behind = math.max(0, clean - reserved), math.max(0, reserved - clean), false
  for i, pair in ipairs(ask.asks) do
    local had, got, plain, loose, is_kept = #picked, pick_tied(i, allowed, limit, left)
    allowed, limit, is_behind = allowed - got, limit - plain, is_behind or is_kept and reserved > 0
    local site, count = pair[1], math.min(opens[i] - got, pair[2] + #loose, allowed)
    if count > 0 then
      local more, of_free, is_more = pick(site, count, limit, left, probes[i])
      allowed, limit = allowed - more, limit - of_free
      tie_loose(loose, #picked - more)
      is_behind = is_behind or more < count and reserved > 0 and (is_more or clean > 0)
    end
    if #picked > had and probes[i] then
      redis.call('HSET', sites, site, probes[i])
      pauses[i] = -1
    end
  end
  return is_behind
end

-- Who did not get all it wanted waits, at its old place if it got nothing.
local function stand_in_line(is_behind)
  if #picked >= wanted then
    redis.call('ZREM', waiting, sid)
    redis.call('HDEL', asks, sid)
    return
  end
  local known = redis.call('HGET', asks, sid)
  local tried, tried_at = seen_arrivals, now
  if is_behind then
    local last = known and cmsgpack.unpack(known) or {-1, 0, 0, 0, -1}
    tried, tried_at = last[1], last[5]
  end
  if #picked > 0 then redis.call('ZREM', waiting, sid) end
  redis.call('ZADD', waiting, 'NX', int(now), sid)
  redis.call('HSET', asks, sid, cmsgpack.pack({tried, now, wanted - #picked, holds, tried_at}))
end

local fence, names = '0', ''
local function lease_picked()
  if #picked == 0 then return end
  fence = next_fence(clock, micros)
  names = table.concat(picked, ' ')
  table.insert(telling('take', sid, fence, ''), names)
  kind.hold(picked, fence .. at_once .. sid)
  bulk('SADD', held, picked)
  holds = holds + #picked
end

-- What an earlier call granted, as far as the session still holds it under the same fence.
local function granted_before()
  local ids, paid = {}, nil
  fence, names, paid = unpack(cmsgpack.unpack(before))
  kind.unpack(paid)
  for id in string.gmatch(names, '%S+') do ids[#ids + 1] = id end
  for i, value in ipairs(bulk_get(resources, ids)) do
    if value and is_lease_of(kind.lease_of(ids[i], sid) or '', sid, fence) then
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
    kind.pay(picked)
    stand_in_line(is_behind)
    if holds == 0 and wanted == 0 then redis.call('ZREM', members, sid) end
  end
  -- Also where nothing was granted: a copy of this call that comes late must not take what nobody will hear of.
  remember(session, ask.verb, n, cmsgpack.pack({fence, names, kind.pack()}))
end

-- How many leases others have a right to: what is above the share; with fewer resources than sessions, each in turn.
local function to_yield()
  if missing <= 0 or holds == 0 then return 0 end
  missing = missing - redis.call('ZCOUNT', free, '-inf', int(now)) - kind.spare()
  if missing <= 0 then return 0 end
  if holds > share then return math.min(missing, holds - share) end
  if in_play >= claimants then return 0 end
  local lease = kind.lease_of(redis.call('SRANDMEMBER', held), sid)
  local since = lease and tonumber(string.sub(lease, FENCE + 1, FIRST_OF_HOLDER - 1)) or 0
  return math.abs(wall - since) >= TENURE and 1 or 0
end

local function recalled()
  local low, high = of(sid)
  local ids = redis.call('ZRANGEBYLEX', recalls, low, high, 'LIMIT', 0, MOVES)
  for i, member in ipairs(ids) do ids[i] = string.sub(member, #sid + 2) end
  return ids
end

local function note_answer()
  local last = redis.call('HMGET', meta, 'silent', 'answered')
  local silent, answered = tonumber(last[1]) or -1, tonumber(last[2]) or 0
  if ask.answered >= 0 and now - ask.answered > answered then
    answered = now - ask.answered
    redis.call('HSET', meta, 'answered', int(answered))
  end
  return silent > answered and math.max(1, now - silent) or 0
end

local yield, silent = to_yield(), note_answer()
finish()
return {{'ok', grace and 1 or 0, now, wall, redis.call('ZCARD', free) + kind.spare(), redis.call('ZCARD', spotted),
  redis.call('HLEN', leases), redis.call('ZCARD', resting), redis.call('HLEN', resources), rivals, share, yield, silent,
  expired},
  fence, picked, values, marks, redis.call('EXISTS', views) == 1 and bulk_get(views, picked) or {}, pauses, recalled(), tied,
  kind.reply(picked)}
