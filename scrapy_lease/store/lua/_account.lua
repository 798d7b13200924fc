-- What makes a pool one of accounts: several sessions may hold one, it has a day with a quota, and it is active or cold.
--
-- accounts HASH id -> its state, see below;   cold LIST of ids, the next to be active first
-- bench   ZSET id -> lease clock until which it is not even cold: what was demoted
-- spent   ZSET id -> end of the day whose quota it has used up, on the server's wall clock
-- paces   HASH site -> the last answers there: {lease clock at which it was asked for, ms, id}
-- jars    HASH id -> what its last holder keeps for the next one
-- leases  of an account are joined by \0; what has a seat left is in free besides
-- An account that nobody holds is in exactly one of free, resting (it cools), bench, cold, spent, or aside.
local accounts, cold, bench, spent, paces, jars = KEYS[25], KEYS[26], KEYS[27], KEYS[28], KEYS[29], KEYS[30]
-- Of a state: layer; end of the day that counts; permits granted in it; lease clock of its next use; how its last uses
-- went; lease clock until which it is to be left alone; an operator freed it while it was held; it is in the list of the
-- cold ones; it is held, and ails: counted in meta.
local LAYER, DAY, USED, NEXT, MARKS, TILL, DOUBT, LISTED, AILS = 1, 2, 3, 4, 5, 6, 7, 8, 9
local ACTIVE, COLD = 'a', 'c'
local LONGEST_DAY = 26 * 3600000         -- ms; of what ends later the clock was stepped back since

kind.keys, kind.is_quick = 30, false
local function nothing() end
for _, name in ipairs({'begin', 'promote', 'pay', 'pack', 'unpack', 'reply', 'add_verbs'}) do kind[name] = nothing end

local rules = redis.call('HMGET', meta, 'holders', 'interval', 'quota')
local holders, interval, quota = tonumber(rules[1]) or 1, tonumber(rules[2]) or 0, tonumber(rules[3]) or 0
local states = {}

local function state_of(id)
  if not states[id] then
    local packed = redis.call('HGET', accounts, id)
    states[id] = packed and cmsgpack.unpack(packed) or {COLD, 0, 0, 0, '', 0, 0, 0, 0}
  end
  return states[id]
end

local function keep(id) redis.call('HSET', accounts, id, cmsgpack.pack(states[id])) end

local function counts(its) return its[DAY] > wall and its[DAY] <= wall + LONGEST_DAY end
local function is_spent(its) return quota > 0 and counts(its) and its[USED] >= quota end

local function leases_on(id)
  local found = {}
  for lease in string.gmatch(redis.call('HGET', leases, id) or '', '[^%z]+') do found[#found + 1] = lease end
  return found
end
kind.holders = leases_on

local function is_full(count) return holders > 0 and count >= holders end

local function unlist(id, its)
  if its[LISTED] == 1 then redis.call('LREM', cold, 1, id) end
  its[LISTED] = 0
end

-- Puts an account where its state says that it belongs, as far as no holder keeps it from there.
local function put(id, value, from)
  local its, held_by, was_free = state_of(id), #leases_on(id), redis.call('ZREM', free, id)
  for _, set in ipairs({resting, bench, spent}) do redis.call('ZREM', set, id) end
  unlist(id, its)
  if held_by == 0 and its[AILS] == 1 then
    its[AILS] = 0
    redis.call('HINCRBY', meta, 'ailing', -1)
  end
  its[DOUBT] = 0
  local is_left_alone, is_cold = its[TILL] > now, its[LAYER] == COLD
  if flag_of(value) ~= PLAIN or held_by > 0 and (is_full(held_by) or is_left_alone or is_cold) then
    -- Aside, or its holders'.
  elseif is_cold and is_left_alone then
    redis.call('ZADD', bench, int(its[TILL]), id)
  elseif is_cold then
    redis.call('RPUSH', cold, id)
    its[LISTED] = 1
  elseif is_left_alone then
    redis.call('ZADD', resting, int(its[TILL]), id)
  elseif is_spent(its) then
    redis.call('ZADD', spent, int(its[DAY]), id)
  else
    redis.call('ZADD', free, int(holders == 1 and math.max(from, its[NEXT]) or from), id)
    arrivals = arrivals + 1 - was_free
  end
  keep(id)
end

function kind.place(id, from) put(id, redis.call('HGET', resources, id), from) end
function kind.offer(id) kind.place(id, now) end
function kind.withdraw(id) redis.call('ZREM', free, id) end

function kind.comes_back(id, value, from)
  local its = state_of(id)
  if from > now then its[NEXT] = math.max(its[NEXT], from) end
  put(id, value, from)
  return true
end

function kind.leave(id)
  for _, set in ipairs({bench, spent}) do redis.call('ZREM', set, id) end
  unlist(id, state_of(id))
  keep(id)
end

local function recall_others(id, sid)
  for _, lease in ipairs(leases_on(id)) do
    local other = holder_of(lease)
    if other ~= sid then redis.call('ZADD', recalls, 0, other .. '\0' .. id) end
  end
end

function kind.forget(id)
  recall_others(id, '')
  redis.call('HDEL', leases, id)
  if state_of(id)[AILS] == 1 then redis.call('HINCRBY', meta, 'ailing', -1) end
  states[id] = nil
  redis.call('HDEL', accounts, id)
  redis.call('HDEL', jars, id)
end

-- By the word of an operator nothing is held against it.
function kind.pardon(id, is_held)
  local its = state_of(id)
  if its[AILS] == 1 then redis.call('HINCRBY', meta, 'ailing', -1) end
  its[AILS] = 0
  its[LAYER], its[MARKS], its[TILL], its[DOUBT] = ACTIVE, '', 0, is_held and 1 or its[DOUBT]
  keep(id)
end

function kind.is_doubtful(id) return state_of(id)[DOUBT] == 1 end

function kind.lease_of(id, sid)
  local found = leases_on(id)
  for _, lease in ipairs(found) do
    if holder_of(lease) == sid then return lease end
  end
  return is_full(#found) and found[1] or false
end

function kind.leases_of(ids, sid)
  local found = {}
  for i, id in ipairs(ids) do found[i] = kind.lease_of(id, sid) end
  return found
end

function kind.drop(ids, sid)
  for _, id in ipairs(ids) do
    local left, found = {}, leases_on(id)
    for _, lease in ipairs(found) do
      if holder_of(lease) ~= sid then left[#left + 1] = lease end
    end
    if #left == 0 then
      redis.call('HDEL', leases, id)
    elseif #left < #found then
      redis.call('HSET', leases, id, table.concat(left, '\0'))
    end
  end
end
function kind.ended(id, sid) kind.drop({id}, sid) end

function kind.hold(ids, lease)
  for _, id in ipairs(ids) do
    kind.drop({id}, holder_of(lease))
    local others = redis.call('HGET', leases, id)
    redis.call('HSET', leases, id, others and others .. '\0' .. lease or lease)
    if holders ~= 1 then kind.offer(id) end
  end
end

-- What a server that lost its tail forgot: an account that its holder reports is free, or cold, there.
function kind.claim(id)
  local its = state_of(id)
  local is_there = redis.call('ZREM', free, id) == 1 or its[LISTED] == 1
  unlist(id, its)
  if is_there then its[LAYER] = ACTIVE end
  keep(id)
  return is_there
end

-- So many permits of that day had been granted when the holder heard of it last.
function kind.told(id, used, day)
  local its = state_of(id)
  if day < its[DAY] then return end
  its[USED] = day == its[DAY] and math.max(used, its[USED]) or used
  its[DAY] = day
  keep(id)
end

function kind.returned(id, unspent, day)
  local its = state_of(id)
  if day == its[DAY] then its[USED] = math.max(0, its[USED] - (unspent or 0)) end
end

function kind.pause() return interval end

-- An account that is held is left alone as soon as it is not any more; other holders than `sid` are told.
local function ail(id, till, sid)
  local its = state_of(id)
  if its[AILS] == 0 then redis.call('HINCRBY', meta, 'ailing', 1) end
  its[TILL], its[AILS] = math.max(its[TILL], till), 1
  redis.call('ZREM', free, id)
  recall_others(id, sid)
  keep(id)
end
