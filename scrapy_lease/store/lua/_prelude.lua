-- Shared by every script: the lease clock, generations, numbered calls, item records and the ready set.
-- An item record is {state, slot, order, mark, attempts, deaths, session, fence, since, sent}; state is
--   P pending (in ready)   D delayed (in delayed, until its time)   L leased (in held of its session)
-- ready orders by download slot, then by order, in one lexicographic set; slots ranks slots by their best order.
local STATE, SLOT, ORDER, MARK, ATTEMPTS, DEATHS, SESSION, FENCE, SINCE, SENT = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10
local MARK_EPOCH = 1577836800            -- marks count seconds from 2020-01-01, so that they stay small integers
local CHUNK = 1000                       -- unpack() of some thousands of values fails

local function int(number) return string.format('%.0f', number) end

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
  local values = {}
  for first = 1, #fields, CHUNK do
    for _, value in ipairs(redis.call('HMGET', key, unpack(fields, first, math.min(first + CHUNK - 1, #fields)))) do
      values[#values + 1] = value
    end
  end
  return values
end

local function next_fences(clock, micros, count)
  local first = math.max((tonumber(redis.call('HGET', clock, 'fence')) or 0) + 1, micros)
  redis.call('HSET', clock, 'fence', int(first + count - 1))
  return first
end

local function member(record, digest) return record[SLOT] .. '\0' .. record[ORDER] .. digest end

local function first_of(ready, slot, count)
  return redis.call('ZRANGEBYLEX', ready, '[' .. slot .. '\0', '(' .. slot .. '\1', 'LIMIT', 0, count)
end

local function rank_slot(ready, slots, slot)
  local head = first_of(ready, slot, 1)[1]
  if head then
    redis.call('ZADD', slots, string.sub(head, #slot + 2, #slot + 17), slot)
  else
    redis.call('ZREM', slots, slot)
  end
end

-- Puts records (a list of digest, record, digest, record …) into ready; the caller has stored or stores them.
local function make_ready(ready, slots, list)
  local members, best = {}, {}
  for i = 1, #list, 2 do
    local record = list[i + 1]
    members[#members + 1] = '0'
    members[#members + 1] = member(record, list[i])
    local slot = record[SLOT]
    if not best[slot] or record[ORDER] < best[slot] then best[slot] = record[ORDER] end
  end
  bulk('ZADD', ready, members)
  for slot, order in pairs(best) do redis.call('ZADD', slots, 'LT', order, slot) end
end

local function leave(record)
  record[STATE], record[SESSION], record[FENCE], record[SINCE], record[SENT] = 'P', '', 0, 0, 0
end
