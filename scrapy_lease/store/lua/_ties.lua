-- First part of pool_take: sticky keys, what each is tied to, and whether it can have that.
-- sticky  HASH key, hashed -> id;   sticky_ends ZSET key -> lease clock at which its tie ends
-- A tie outlives leases. It does not follow what happens to its resource: whoever asks for the key sees to that.
local sticky, sticky_ends = KEYS[kind.keys + 1], KEYS[kind.keys + 2]
local sid, ask = ARGV[2], cmsgpack.unpack(ARGV[4])
local HERE, AWAY = 'here', 'away'
local FOREVER = 315360000000 -- ms; some ten years

local too_soon = moment(wall + ask.margin)
local tied, wishes = {}, {}
-- Of the keys, by number: is it tied once and for ever? While its resource may not serve, it waits for that one.
local strict = {}

local function clear_ties()
  local ended = redis.call('ZRANGEBYSCORE', sticky_ends, '-inf', int(now), 'LIMIT', 0, MOVES)
  bulk('HDEL', sticky, ended)
  bulk('ZREM', sticky_ends, ended)
end

local function tie(number, key, id)
  redis.call('HSET', sticky, key, id)
  redis.call('ZADD', sticky_ends, int(now + (strict[number] and FOREVER or ask.ttl)), key)
  tied[number] = id
end

local function tied_to(key)
  local id = redis.call('HGET', sticky, key)
  return id and tonumber(redis.call('ZSCORE', sticky_ends, key)) > now and id or ''
end

-- What serves in the place of a resource: of several identities of one exit address the one in play. Returns id, record.
local function in_place_of(id)
  local value = redis.call('HGET', resources, id)
  local exit = value and exit_of(value) or ''
  local other = exit ~= '' and redis.call('HGET', exits, exit)
  if not other or other == id then return id, value end
  return other, redis.call('HGET', resources, other)
end

-- Where a resource is that may serve a site: the set it is free in, HERE if the session has it, AWAY if another has, or
-- it is free later. false: it may not.
local function whereabouts(id, value, site)
  if not value or has_expired(value, too_soon) then return false end
  local mark = site_rests(id)[site]
  if mark and mark[1] > now then return false end
  local lease = kind.lease_of(id, sid)
  if lease then return holder_of(lease) == sid and HERE or AWAY end
  local set = redis.call('ZSCORE', free, id) and free or spotted
  local from = redis.call('ZSCORE', set, id)
  return from and (tonumber(from) <= now and set or AWAY)
end

local function is_in(list, sought)
  for _, entry in ipairs(list) do
    if entry == sought then return true end
  end
  return false
end

-- Ties a key to what the session has, or leaves a wish: {number, key, resource it is tied to, where that is, or false}.
local resolve
do
  -- Takes in what is made for one key, {id, body, ms that it lives, 0: for ever}, unless it is there. Returns id, record.
  local function admit(own)
    local id, body, life = unpack(own)
    local value = redis.call('HGET', resources, id)
    if value and body_of(value) == body then return id, value end
    if value then
      value = resource(flag_of(value), strikes_of(value), expiry_of(value), exit_of(value), body)
      redis.call('HSET', resources, id, value)
      return id, value
    end
    local expiry = life > 0 and wall + life or 0
    value = resource(PLAIN, 0, expiry, '', body)
    redis.call('HSET', resources, id, value)
    if expiry > 0 then redis.call('ZADD', expiries, int(expiry), id) end
    enter(id, value, now)
    tell('new', sid, '', '', id)
    return id, value
  end

  -- May a key that is tied to what does not serve it be tied to another one that is made for it? One that is tied once and
  -- for ever only to the same, where the pool has lost it.
  local function may_have(own, number, known)
    if known == '' or not strict[number] then return own end
    return own and known == own[1] and redis.call('HEXISTS', resources, known) == 0
  end

  resolve = function(number, key, i, offer, avoid, own)
    local site, known = ask.asks[i][1], tied_to(key)
    local id, value = in_place_of(known)
    local where = not is_in(avoid, id) and whereabouts(id, value, site)
    if not where and may_have(own, number, known) then
      id, value = admit(own)
      tie(number, key, id)
      where = whereabouts(id, value, site) or AWAY
    end
    if not where and strict[number] and known ~= '' then where = AWAY end
    if where == HERE then
      tie(number, key, id)
    elseif not where and whereabouts(offer, redis.call('HGET', resources, offer), site) == HERE then
      tie(number, key, offer)
    else
      tied[number] = where and id or ''
      table.insert(wishes[i], {number, key, id, where})
    end
  end
end

-- A key that is used on what it offers stays tied to it, also where a server has lost the tie.
local function renew(number, key, id)
  local known, lease = tied_to(key), kind.lease_of(id, sid)
  tied[number] = known
  if (known == '' or known == id) and lease and holder_of(lease) == sid then tie(number, key, id) end
end

-- pauses: above 0 where the site of an ask is paused. In the grace of a new server ties are only kept.
local function resolve_ties(pauses, is_repeated, grace)
  for i in ipairs(ask.asks) do wishes[i] = {} end
  for number, entry in ipairs(ask.ties) do
    local key, i, offer, avoid, is_strict, own = unpack(entry)
    strict[number] = is_strict == 1
    if is_repeated then
      tied[number] = tied_to(key)
    elseif i == 0 then
      renew(number, key, offer)
    elseif pauses[i] <= 0 and not grace then
      resolve(number, key, i, offer, avoid, own)
    else
      tied[number] = ''
    end
  end
end
