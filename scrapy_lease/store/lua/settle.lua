-- Says what became of leased items. Accepted while the session holds them under this fence, whatever the clock says.
-- KEYS clock session meta ready slots delayed state payload dead held, then the done buckets that the entries name
-- ARGV run_id, sid, n, {digests, fences, verbs, args}: verbs holds one character an entry, args maps its index to a list
--      k: done, kept over runs, {bucket} if its mark counts for a time      r: done for this run, {bucket}
--      l: done, and it led to other items, {bucket, 1 if kept over runs}
--      n: done, not an item      x: rejected, {bucket}; {} if not an item   f: failed, {delay ms, attempts, reason, trace}
--      d: dead, {reason, trace}  b: back, {delay ms}                        s: may have been sent; stays leased
-- Returns one character an entry: + accepted, ! accepted and dead now, - not held (any more); or 'older'
local clock, session, meta, ready, slots = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local delayed, state, payload, dead, held = KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10]
local FIRST_BUCKET = 10
local sid, n = ARGV[2], tonumber(ARGV[3])

local before = replay(session, 'settle', n)
if before then return before end
local digests, fences, verbs, args = unpack(cmsgpack.unpack(ARGV[4]))
local now, wall = advance(clock)
local run = tonumber(redis.call('HGET', meta, 'run')) or 1
local leases, counts = bulk_get(held, digests), {}
local reply, gone, freed, others, seen, pending = {}, {}, {}, {}, {}, {}
local done, over = 0, 0

local byte = string.byte
local KEPT, NO_ITEM, MAY_BE_SENT = byte('k'), byte('n'), byte('s')
for i = 1, #digests do
  local digest, lease, fence, verb = digests[i], leases[i], fences[i], byte(verbs, i)
  if (lease ~= fence and lease ~= fence .. SENT) or seen[digest] then
    reply[i] = '-'
  elseif verb == MAY_BE_SENT then
    redis.call('HSET', held, digest, fence .. SENT)
    reply[i] = '+'
  else
    over = over + 1
    freed[over], seen[digest] = digest, true
    if verb == NO_ITEM or (verb == KEPT and not args[i]) then
      done = done + 1
      gone[done], reply[i] = digest, '+'
    else
      others[#others + 1] = i
    end
  end
end
if done > 0 then counts.done = done end

-- The mark that an item got when it was pushed is right for most; here it becomes another.
local function finish(i, value, name, mark)
  local digest, code, bucket = digests[i], string.sub(value, 1, 1), args[i] and args[i][1]
  if bucket and code ~= 'n' and (code ~= 'r' or mark > 0) then
    redis.call('HSET', KEYS[FIRST_BUCKET + bucket], string.sub(digest, 9), int(mark))
  end
  gone[#gone + 1], counts[name] = digest, (counts[name] or 0) + 1
  return '+'
end

local function end_with(i, value, reason, trace)
  bury(meta, state, payload, dead, digests[i], value, reason, trace, wall)
  return '!'
end

local function hand_back(i, value, delay)
  if delay > 0 then
    redis.call('ZADD', delayed, int(now + delay), digests[i])
  else
    pending[#pending + 1], pending[#pending + 2] = digests[i], value
  end
  return '+'
end

local function fail(i, value, delay, allowed, reason, trace)
  local attempts, deaths = faults_of(value)
  counts.failed = (counts.failed or 0) + 1
  value = with_faults(value, attempts + 1, deaths)
  if attempts + 1 >= allowed then return end_with(i, value, reason, trace) end
  redis.call('HSET', state, digests[i], value)
  return hand_back(i, value, delay)
end

local verb_of = {
  k = function(i, value) return finish(i, value, 'done', math.floor(wall / 1000) - MARK_EPOCH) end,
  r = function(i, value) return finish(i, value, 'done', -run) end,
  l = function(i, value, _, kept)
    return finish(i, value, 'done', run * LEADS + (kept == 1 and math.floor(wall / 1000) - MARK_EPOCH or 0))
  end,
  x = function(i, value) return finish(i, value, 'rejected', -run) end,
  f = fail, d = end_with, b = hand_back,
}
for _, i in ipairs(others) do
  local value = redis.call('HGET', state, digests[i])
  reply[i] = value and verb_of[string.sub(verbs, i, i)](i, value, unpack(args[i] or {})) or '-'
end

bulk('HDEL', state, gone)
bulk('HDEL', held, freed)
make_ready(meta, ready, slots, pending)
for name, number in pairs(counts) do redis.call('HINCRBY', meta, name, number) end
local answer = table.concat(reply)
remember(session, 'settle', n, answer)
return answer
