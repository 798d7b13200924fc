-- Leases named items to a session, for crawls that schedule by themselves: what nobody has is pushed and leased at once.
-- KEYS clock sessions session meta ready slots delayed state payload dead held control, then the done buckets of the entries
-- ARGV run_id, sid, n, job, {digests, slots, priorities, payloads, codes, buckets, ttls} as for push
-- Returns {'ok', fence, one character an entry, {ms to wait, for each ~}, {i, attempts, deaths, … of those with faults}}
--      + leased under the fence   = another session's, or nothing is granted now   ~ a fault's wait is not over
--      . over: done, rejected, or dead in this run    > over, and it led to other items in this run
--         | {'lost'} | {'report'} | {'older'}
local clock, sessions, session, meta, ready, slots = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local delayed, state, payload, dead, held, control = KEYS[7], KEYS[8], KEYS[9], KEYS[10], KEYS[11], KEYS[12]
local FIRST_BUCKET = 12
local run_id, sid, n, job = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
local digests, slot_of, priorities, payloads, codes, buckets, ttls = unpack(cmsgpack.unpack(ARGV[5]))

local now, wall, micros = advance(clock)
local number, grace = generation(clock, sessions, run_id, now)
if deadline_of(sessions, sid) <= now then return {'lost'} end
if redis.call('HGET', session, 'generation') ~= int(number) then return {'report'} end

-- What an earlier call said; leases that are not held any more are to be asked for again.
local function said_before(before)
  local fence, reply, leases = string.sub(before, 1, FENCE), {}, bulk_get(held, digests)
  for i = 1, #digests do
    local said = string.sub(before, FENCE + i, FENCE + i)
    local is_to_be_asked = said == '~' or (said == '+' and not is_held(leases[i], fence))
    reply[i] = is_to_be_asked and '=' or said
  end
  return fence, table.concat(reply)
end

local function faults(values, reply)
  local found = {}
  for i = 1, #digests do
    if values[i] and string.sub(reply, i, i) == '+' then
      local attempts, deaths = faults_of(values[i])
      if attempts + deaths > 0 then
        found[#found + 1], found[#found + 2], found[#found + 3] = i, attempts, deaths
      end
    end
  end
  return found
end

local values = bulk_get(state, digests)
local before = replay(session, 'claim', n)
if before == 'older' then return {'older'} end
if before then
  local fence, reply = said_before(before)
  return {'ok', fence, reply, {}, faults(values, reply)}
end

local counters = redis.call('HMGET', meta, 'run', 'seq', 'run_began')
local run, seq, seconds = tonumber(counters[1]) or 1, tonumber(counters[2]) or 0, math.floor(wall / 1000)
local began = math.floor((tonumber(counters[3]) or 0) / 1000)
local fence, reply, waits, seen, leases, states = next_fence(clock, micros), {}, {}, {}, {}, {}

-- An item that is in the backlog: free to be leased, or waiting, or another's.
local function ask_known(digest, value)
  if leave_ready(meta, ready, slots, digest, value) then return '+' end
  local due = tonumber(redis.call('ZSCORE', delayed, digest))
  if not due then return '=' end
  if due > now then
    waits[#waits + 1] = math.ceil(due - now)
    return '~'
  end
  redis.call('ZREM', delayed, digest)
  return '+'
end

local function died_in_this_run(digest)
  local record = redis.call('HGET', dead, digest)
  return record and cmsgpack.unpack(record)[5] >= began
end

local function ask_unknown(i, digest, code)
  if code ~= 'n' then
    if died_in_this_run(digest) then return '.' end
    local is_fresh, led = is_new(KEYS[FIRST_BUCKET + buckets[i]], dead, digest, code, ttls[i], run, seconds)
    if not is_fresh then return led and '>' or '.' end
    if redis.call('HDEL', dead, digest) == 1 then redis.call('HDEL', payload, digest) end
  end
  seq = seq + 1
  local order = order_of(rank_of(priorities[i]), seq)
  states[#states + 1], states[#states + 2] = digest, record(code, 0, 0, order, slot_of[i], payloads[i])
  return '+'
end

local is_open = not grace and redis.call('HEXISTS', control, 'pause:' .. job) == 0
for i, digest in ipairs(digests) do
  if not is_open or seen[digest] then
    reply[i] = '='
  elseif values[i] then
    reply[i] = ask_known(digest, values[i])
  else
    reply[i] = ask_unknown(i, digest, string.sub(codes, i, i))
  end
  if reply[i] == '+' then
    seen[digest] = true
    leases[#leases + 1], leases[#leases + 2] = digest, fence
  end
end

bulk('HSET', state, states)
hold(held, leases)
if #states > 0 then
  redis.call('HSET', meta, 'seq', int(seq))
  redis.call('HINCRBY', meta, 'accepted', #states / 2)
end
local answer = table.concat(reply)
local _, known = string.gsub(answer, '[.>]', '')
if known > 0 then redis.call('HINCRBY', meta, 'duplicate', known) end
remember(session, 'claim', n, fence .. answer)
return {'ok', fence, answer, waits, faults(values, answer)}
