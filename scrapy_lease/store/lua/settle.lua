-- Says what became of leased items. Accepted while the record names this session and fence, whatever the clock says.
-- KEYS clock session meta ready slots delayed state payload dead held, then the done buckets that the entries name
-- ARGV run_id, sid, n, {{digest, fence, verb, …}, …} with the verbs
--      done, bucket, field, mark ('keep' over runs | 'run'; bucket 0: not an item)   rejected, bucket, field
--      failed, delay ms, attempts allowed, reason, trace    dead, reason, trace    back, delay ms    sent
-- Returns one character an entry: + accepted, ! accepted and dead now, - not held (any more); or 'older'
local clock, session, meta, ready, slots = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local delayed, state, payload, dead, held = KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10]
local FIRST_BUCKET = 10
local sid, n, entries = ARGV[2], tonumber(ARGV[3]), cmsgpack.unpack(ARGV[4])

local before = replay(session, 'settle', n)
if before then return before end
local now, wall = advance(clock)
local run = tonumber(redis.call('HGET', meta, 'run')) or 1
local seconds = math.floor(wall / 1000)
local gone, freed, stored, list, counts = {}, {}, {}, {}, {}
local function count(name) counts[name] = (counts[name] or 0) + 1 end
local function store(digest, record)
  stored[#stored + 1], stored[#stored + 2] = digest, cmsgpack.pack(record)
end

local function finish(digest, entry, value)
  if entry[4] > 0 then redis.call('HSET', KEYS[FIRST_BUCKET + entry[4]], entry[5], int(value)) end
  gone[#gone + 1], freed[#freed + 1] = digest, digest
  return '+'
end

local function bury(digest, record, reason, trace)
  redis.call('HSET', dead, digest,
    cmsgpack.pack({reason, trace, record[ATTEMPTS], record[DEATHS], seconds, record[SLOT], record[ORDER]}))
  redis.call('HDEL', state, digest)
  freed[#freed + 1] = digest
  count('died')
  return '!'
end

local function hand_back(digest, record, delay)
  leave(record)
  freed[#freed + 1] = digest
  if delay > 0 then
    record[STATE] = 'D'
    redis.call('ZADD', delayed, int(now + delay), digest)
  else
    list[#list + 1], list[#list + 2] = digest, record
  end
  store(digest, record)
  return '+'
end

local verbs = {
  done = function(digest, record, entry)
    count('done')
    return finish(digest, entry, entry[6] == 'keep' and seconds - MARK_EPOCH or -run)
  end,
  rejected = function(digest, record, entry)
    count('rejected')
    return finish(digest, entry, -run)
  end,
  failed = function(digest, record, entry)
    count('failed')
    record[ATTEMPTS] = record[ATTEMPTS] + 1
    if record[ATTEMPTS] >= entry[5] then return bury(digest, record, entry[6], entry[7]) end
    return hand_back(digest, record, entry[4])
  end,
  dead = function(digest, record, entry) return bury(digest, record, entry[4], entry[5]) end,
  back = function(digest, record, entry) return hand_back(digest, record, entry[4]) end,
  sent = function(digest, record)
    record[SENT] = 1
    redis.call('HSET', state, digest, cmsgpack.pack(record))
    return '+'
  end,
}

local digests, reply, settled = {}, {}, {}
for i, entry in ipairs(entries) do digests[i] = entry[1] end
for i, packed in ipairs(bulk_get(state, digests)) do
  local entry, record = entries[i], packed and cmsgpack.unpack(packed)
  local digest = entry[1]
  if not record or settled[digest] or record[STATE] ~= 'L' or record[SESSION] ~= sid or record[FENCE] ~= entry[2] then
    reply[i] = '-'
  else
    settled[digest] = entry[3] ~= 'sent'
    reply[i] = verbs[entry[3]](digest, record, entry)
  end
end
bulk('HDEL', state, gone)
bulk('HDEL', payload, gone)
bulk('SREM', held, freed)
bulk('HSET', state, stored)
make_ready(ready, slots, list)
for name, number in pairs(counts) do redis.call('HINCRBY', meta, name, number) end
local answer = table.concat(reply)
remember(session, 'settle', n, answer)
return answer
