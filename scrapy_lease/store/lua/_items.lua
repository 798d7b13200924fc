-- Shared by the scripts of items: their records, marks, and the ready set.
--
-- state   HASH digest -> code, attempts (3 digits), deaths (3), order (16), length of slot (4), slot, payload: every item
--         that is not over, written when it is pushed and when a fault is counted. code is k: an item, t: an item whose
--         mark counts for a time, r: marked for this run only, n: not an item.
-- held    HASH of one session, digest -> fence (16 digits), then S if it may have been sent: its leases.
-- ready   ZSET of slot, \0, order, 1 to 64 digests whose orders follow each other: what is pending, in lexicographic order.
-- slots   ZSET slot -> its best order;   delayed ZSET digest -> when it is pending again, on the lease clock.
-- An item of state is in exactly one of ready, delayed and the held of one session.
local DIGEST, ORDER = 16, 16             -- their lengths
local PER_MEMBER, SENT = 64, 'S'
local MARK_EPOCH = 1577836800            -- marks count seconds from 2020-01-01, so that they stay small integers
local LEADS = 2 ^ 31                     -- see is_new

-- Where a request comes among those of its slot: the greater its priority the sooner, then first in, first out.
local function rank_of(priority) return 32768 - math.max(-32767, math.min(32767, priority)) end

local function order_of(rank, seq) return string.format(PADDED, rank * 1e11 + seq) end

local function order_after(order, count) return string.format(PADDED, tonumber(order) + count) end

local function record(code, attempts, deaths, order, slot, payload)
  return string.format('%s%03d%03d%s%04d%s', code, attempts, deaths, order, #slot, slot) .. payload
end

local function place_of(value)
  local last = 27 + tonumber(string.sub(value, 24, 27))
  return string.sub(value, 28, last), string.sub(value, 8, 23), last + 1
end

local function faults_of(value) return tonumber(string.sub(value, 2, 4)), tonumber(string.sub(value, 5, 7)) end

local function with_faults(value, attempts, deaths)
  local counts = string.format('%03d%03d', math.min(attempts, 999), math.min(deaths, 999))
  return string.sub(value, 1, 1) .. counts .. string.sub(value, 8)
end

local function bury(meta, state, payload, dead, digest, value, reason, trace, wall)
  local attempts, deaths = faults_of(value)
  local slot, order, body = place_of(value)
  redis.call('HSET', dead, digest,
    cmsgpack.pack({reason, trace, attempts, deaths, math.floor(wall / 1000), slot, order}))
  redis.call('HSET', payload, digest, string.sub(value, body))
  redis.call('HDEL', state, digest)
  redis.call('HINCRBY', meta, 'died', 1)
end

-- Marks an item as known, and says whether it is new: neither done nor (what the caller looks up) in the backlog.
-- A mark stays when the item is done, so being done costs no write. It is -run: counts for that run; a second: for a time;
-- or run * LEADS + second (0: none): the page led to others in that run, and counts as its second says.
-- Returns false, and whether the page led on in this run, for an item that is not new.
local function is_new(bucket, dead, digest, code, ttl, run, seconds)
  local field, value = string.sub(digest, 9), int(code == 'r' and -run or seconds - MARK_EPOCH)
  if redis.call('HSETNX', bucket, field, value) == 1 then return true end
  if redis.call('HEXISTS', dead, digest) == 0 then
    local mark = tonumber(redis.call('HGET', bucket, field))
    local led_in = math.floor(mark / LEADS)
    if mark == -run or led_in == run then return false, led_in == run end
    local second = mark % LEADS
    if mark > 0 and second > 0 and (ttl == 0 or seconds - MARK_EPOCH - second < ttl) then return false, false end
  end
  redis.call('HSET', bucket, field, value)
  return true
end

local function first_of(ready, slot, count)
  return redis.call('ZRANGEBYLEX', ready, '[' .. slot .. '\0', '(' .. slot .. '\1', 'LIMIT', 0, count)
end

local function rank_slot(ready, slots, slot)
  local head = first_of(ready, slot, 1)[1]
  if head then
    redis.call('ZADD', slots, string.sub(head, #slot + 2, #slot + 1 + ORDER), slot)
  else
    redis.call('ZREM', slots, slot)
  end
end

-- Takes one digest out of its member of ready, which falls in two; false: it is not there.
local function leave_ready(meta, ready, slots, digest, value)
  local slot, order = place_of(value)
  local head, top = #slot + 1 + ORDER, '(' .. slot .. '\0' .. order_after(order, 1)
  local entry = redis.call('ZREVRANGEBYLEX', ready, top, '[' .. slot .. '\0', 'LIMIT', 0, 1)[1]
  if not entry then return false end
  local first = head + 1 + DIGEST * (tonumber(order) - tonumber(string.sub(entry, #slot + 2, head)))
  local last = first + DIGEST - 1
  if string.sub(entry, first, last) ~= digest then return false end
  redis.call('ZREM', ready, entry)
  if first > head + 1 then redis.call('ZADD', ready, 0, string.sub(entry, 1, first - 1)) end
  if last < #entry then
    redis.call('ZADD', ready, 0, slot .. '\0' .. order_after(order, 1) .. string.sub(entry, last + 1))
  end
  redis.call('HINCRBY', meta, 'ready', -1)
  rank_slot(ready, slots, slot)
  return true
end

-- Puts members (slot, order, digests, slot, order, digests, …) of count digests into ready.
local function add_ready(meta, ready, slots, members, count)
  local entries, best = {}, {}
  for i = 1, #members, 3 do
    local slot, order = members[i], members[i + 1]
    entries[#entries + 1] = '0'
    entries[#entries + 1] = slot .. '\0' .. order .. members[i + 2]
    if not best[slot] or order < best[slot] then best[slot] = order end
  end
  bulk('ZADD', ready, entries)
  for slot, order in pairs(best) do redis.call('ZADD', slots, 'LT', order, slot) end
  if count > 0 then redis.call('HINCRBY', meta, 'ready', count) end
end

-- The same for single items (digest, its value in state, digest, value, …).
local function make_ready(meta, ready, slots, items)
  local members = {}
  for i = 1, #items, 2 do
    local slot, order = place_of(items[i + 1])
    members[#members + 1], members[#members + 2], members[#members + 3] = slot, order, items[i]
  end
  add_ready(meta, ready, slots, members, #items / 2)
end
