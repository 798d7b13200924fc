-- A session says how its leased resources did, and gives them back. What it does not hold under that fence (any more) it
-- cannot change. Entries are taken in turn, several for one resource if need be.
-- ARGV run_id, sid, n, {ids, fences, verbs, args, verb}: verbs holds one character an entry, args maps its index to a list,
--      where there is one
--      o: served site well, {site}: ends its rest there, its strikes and the site's pause; stays leased
--      n: banned at site, {site, first, longest, share}; stays leased      k: broken, {first, longest, share}: rests for all
--      h: no answer at site: as n                                          b: back, {delay ms}: free again
--      g: gone, {reason}: of no use to anybody; reason broken: it gave no answer
--      v: how it serves site, {site, 1 if it has just served it, suspect}: for whoever holds it next
--      a rest lasts first ms, doubled with each strike up to longest, less a quarter of it times share / 1000
-- Returns one character an entry: + accepted, - lost: not held (any more), = the site is paused instead of the resource,
--         ! banned at so many sites that it rests for all, as soon as its holder gives it back; or 'older'
local sid, n = ARGV[2], tonumber(ARGV[3])
local ids, fences, verbs, args, verb = unpack(cmsgpack.unpack(ARGV[4]))
local NOTHING = {}
local before = replay(session, verb, n)
if before then return before end

local held_as, values, reply, ended, ends = kind.leases_of(ids, sid), bulk_get(resources, ids), {}, {}, {}
local has_rests, has_recalls = redis.call('EXISTS', rests) == 1, redis.call('EXISTS', recalls) == 1
local has_behind = redis.call('EXISTS', behind) == 1
local records = {} -- of what more is said than that it is back

-- Since when nothing has answered: the first failure after the last answer that anybody told of.
local is_silent = false
local function note_silence()
  if is_silent then return end
  is_silent = true
  local last = redis.call('HMGET', meta, 'silent', 'answered')
  if (tonumber(last[1]) or -1) <= (tonumber(last[2]) or 0) then redis.call('HSET', meta, 'silent', int(now)) end
end

local count, same_fence = 0, nil
local function end_of(id, fence, why)
  count, same_fence = count + 1, nil
  ended[id], ends[count] = true, id
  tell('back', sid, fence, why, id)
  kind.ended(id, sid)
end

local function rest_broken(id, fence, first, longest, share)
  local strikes = strikes_of(records[id]) + 1
  local value = with_strikes(records[id], strikes)
  redis.call('HSET', resources, id, value)
  end_of(id, fence, 'broken')
  rest_for_all(id, value, rest(strikes, first, longest, share))
end

local function pause(site, refuses, first, longest, share)
  local packed = redis.call('HGET', sites, site)
  local until_when, strikes = unpack(packed and cmsgpack.unpack(packed) or {0, 0})
  if until_when > now then return end
  redis.call('HSET', sites, site, cmsgpack.pack({rest(strikes + 1, first, longest, share), strikes + 1, 0, '', refuses}))
  tell('pause', sid, '', site, '-')
end

-- Of sites that are too many the one of which was heard least lately is forgotten, a suspicion last.
local VIEWS = 32
local function view(id, _, site, is_serving, suspect)
  local packed = redis.call('HGET', views, id)
  local known = packed and cmsgpack.unpack(packed) or {}
  local served_at = is_serving == 1 and now or known[site] and known[site][1] or 0
  known[site] = (served_at > 0 or suspect ~= '') and {served_at, suspect} or nil
  local number, oldest, least = 0, nil, math.huge
  for other, row in pairs(known) do
    local rank = row[1] + (row[2] ~= '' and 2 ^ 50 or 0)
    number = number + 1
    if rank < least and other ~= site then oldest, least = other, rank end
  end
  if number > VIEWS then known[oldest] = nil end
  if next(known) then redis.call('HSET', views, id, cmsgpack.pack(known)) else redis.call('HDEL', views, id) end
  return '+'
end

local function ban(id, fence, refuses, site, first, longest, share)
  local mark = site_rests(id)[site]
  if mark and mark[1] > now then return '+' end
  tell('ban', sid, fence, site, id)
  if redis.call('HEXISTS', views, id) == 1 then view(id, fence, site, 0, '') end
  local benched_there = count_of(benched, site) + (mark and 0 or 1)
  if redis.call('HEXISTS', sites, site) == 1 or benched_there * 2 > redis.call('HLEN', resources) then
    pause(site, refuses, first, longest, share)
    return '='
  end
  local strikes = (mark and mark[2] or 0) + 1
  bench(id, site, {rest(strikes, first, longest, share), strikes})
  -- Its holder may be using it, and may never hear of this: so it stays its holder's until that says otherwise.
  return banned_until(id) > now and '!' or '+'
end

-- A site that refuses all is probed seldom: that one probe has no answer says nothing of the pool.
local function does_refuse(site)
  local packed = redis.call('HGET', sites, site)
  return packed and cmsgpack.unpack(packed)[5] == 1
end

local verb_of = {
  o = function(id, _, site)
    local value = records[id]
    if strikes_of(value) > 0 then
      records[id] = with_strikes(value, 0)
      redis.call('HSET', resources, id, records[id])
    end
    if site_rests(id)[site] then bench(id, site, nil) end
    redis.call('HDEL', sites, site)
    return '+'
  end,
  n = function(id, fence, ...) return ban(id, fence, 1, ...) end,
  v = view,
  h = function(id, fence, site, ...)
    if not does_refuse(site) then note_silence() end
    return ban(id, fence, 0, site, ...)
  end,
  k = function(id, fence, first, longest, share)
    note_silence()
    rest_broken(id, fence, first, longest, share)
    return '+'
  end,
  g = function(id, fence, reason)
    if reason == 'broken' then note_silence() end
    end_of(id, fence, reason)
    vanish(id, records[id], reason)
    return '+'
  end,
}

verb_of.b = function(id, fence, delay, ...)
  kind.returned(id, ...)
  end_of(id, fence, banned_until(id) > now and 'sites' or '')
  come_back(id, records[id], now + (delay or 0))
  return '+'
end
kind.add_verbs(verb_of, records, end_of)

-- The way of most: back into free, where no flag, no rest and nobody behind its exit has a say. It is worth each call and
-- each string that is not made for it.
local byte, BACK, NO_FLAG = string.byte, string.byte('b'), string.byte(PLAIN)
local freed, freed_count, free_from, event, told_count = {}, 0, int(now), nil, 0
local function is_easy(id, value)
  return kind.is_quick and not has_behind and byte(value) == NO_FLAG and not has_expired(value, at_once)
    and not (has_rests and redis.call('HEXISTS', rests, id) == 1)
end

local function free_at_once(id, fence)
  if fence ~= same_fence then
    same_fence, event = fence, telling('back', sid, fence, '')
    told_count = #event
  end
  count, told_count = count + 1, told_count + 1
  ended[id], ends[count], event[told_count] = true, id, id
  freed[freed_count + 1], freed[freed_count + 2] = free_from, id
  freed_count = freed_count + 2
end

local function lost(id, lease)
  local is_lost = not lease or holder_of(lease) ~= sid
  if has_recalls and is_lost and redis.call('ZREM', recalls, sid .. '\0' .. id) == 1 then redis.call('SREM', held, id) end
end

local known, known_fence -- leases of one call are alike
for i = 1, #ids do
  local id, lease, fence = ids[i], held_as[i], fences[i]
  if lease and not ended[id] and (lease == known and fence == known_fence or is_lease_of(lease, sid, fence)) then
    known, known_fence = lease, fence
    local value, code = records[id] or values[i], byte(verbs, i)
    if code == BACK and not args[i] and is_easy(id, value) then
      free_at_once(id, fence)
      reply[i] = '+'
    else
      code, records[id] = string.char(code), value
      has_rests = has_rests or code == 'n' or code == 'h'
      reply[i] = verb_of[code](id, fence, unpack(args[i] or NOTHING))
    end
  else
    reply[i] = '-'
    lost(id, lease)
  end
end
arrivals = arrivals + freed_count / 2

bulk('ZADD', free, freed)
kind.drop(ends, sid)
bulk('SREM', held, ends)
if has_recalls then
  for _, id in ipairs(ends) do redis.call('ZREM', recalls, sid .. '\0' .. id) end
end
if redis.call('EXISTS', held) == 0 and not redis.call('ZSCORE', waiting, sid) then forget(sid) end
local answer = table.concat(reply)
remember(session, verb, n, answer)
finish()
return answer
