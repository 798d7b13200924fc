-- Shared by every script: the lease clock, generations, numbered calls, fences.
local FENCE = 16                         -- its length
local CHUNK = 4000                       -- unpack() of more than some 7000 values fails

local SESSION_KEPT = 7 * 86400000        -- ms without a beat after which a session's hash goes; by the wall clock, which steps
local SESSION_FORGOTTEN = 3600000        -- ms for which a session without leases may still ask for its last replies

-- Whole numbers as text. A format of floating point takes five times as long; where the C type long has 32 bits, it has to.
local IS_WIDE = string.format('%d', 2 ^ 40) == '1099511627776'
local INT, PADDED = IS_WIDE and '%d' or '%.0f', IS_WIDE and '%016d' or '%016.0f'
local function int(number) return string.format(INT, math.floor(number + 0.5)) end

-- Time that nobody can step: it advances with the server's clock, but never back and at most 1 s a call.
local function advance(clock)
  local time = redis.call('TIME')
  local micros = time[1] * 1000000 + time[2]
  local wall = math.floor(micros / 1000)
  local last = redis.call('HMGET', clock, 'wall', 'now')
  local step = math.min(math.max(wall - (tonumber(last[1]) or wall), 0), 1000)
  local now = (tonumber(last[2]) or 0) + step
  redis.call('HSET', clock, 'wall', int(wall), 'now', int(now))
  return now, wall, micros
end

-- A server that restarted may have lost its last writes: it grants nothing until whoever still holds has said so.
local function generation(clock, sessions, run_id, now)
  local known = redis.call('HMGET', clock, 'generation', 'run_id', 'grace', 'ttl_max')
  local number, grace = tonumber(known[1]) or 0, tonumber(known[3]) or 0
  if known[2] ~= run_id then
    number, grace = number + 1, 0
    if redis.call('ZCARD', sessions) > 0 then grace = now + (tonumber(known[4]) or 60000) end
    redis.call('HSET', clock, 'generation', int(number), 'run_id', run_id, 'grace', int(grace))
  end
  return number, grace > now
end

local function deadline_of(sessions, sid) return tonumber(redis.call('ZSCORE', sessions, sid) or 0) end

-- The stored reply if n repeats the last call of this verb, 'older' if it is older still, nil if it is new.
local function replay(session, verb, n)
  local last = redis.call('HMGET', session, verb .. ':n', verb .. ':reply')
  local known = tonumber(last[1]) or 0
  if n == known then return last[2] end
  if n < known then return 'older' end
end

local function remember(session, verb, n, reply)
  if redis.call('EXISTS', session) == 1 then redis.call('HSET', session, verb .. ':n', int(n), verb .. ':reply', reply) end
end

local function bulk(command, key, values)
  for first = 1, #values, CHUNK do
    redis.call(command, key, unpack(values, first, math.min(first + CHUNK - 1, #values)))
  end
end

local function bulk_get(key, fields)
  if #fields == 0 then return {} end
  if #fields <= CHUNK then return redis.call('HMGET', key, unpack(fields)) end
  local values = {}
  for first = 1, #fields, CHUNK do
    for _, value in ipairs(redis.call('HMGET', key, unpack(fields, first, math.min(first + CHUNK - 1, #fields)))) do
      values[#values + 1] = value
    end
  end
  return values
end

-- Adds leases (digest, lease, digest, lease, …) to held. Of a few hundred short fields the server makes a list that it
-- searches from end to end for each; one long value makes it a table, and a table it stays.
local function hold(held, leases)
  local is_list = #leases > 64 and redis.call('HLEN', held) < 512
  if is_list then redis.call('HSET', held, '', string.rep(' ', 65)) end
  bulk('HSET', held, leases)
  if is_list then redis.call('HDEL', held, '') end
end

-- One for all that a call grants: of any one item, a later grant has the greater.
local function next_fence(clock, micros)
  local fence = math.max((tonumber(redis.call('HGET', clock, 'fence')) or 0) + 1, micros)
  redis.call('HSET', clock, 'fence', int(fence))
  return string.format(PADDED, fence)
end

local function is_held(lease, fence) return lease and string.sub(lease, 1, FENCE) == fence end
