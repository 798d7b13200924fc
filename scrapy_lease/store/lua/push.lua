-- Adds requests to the backlog, each once: what is pending, leased or done already is a duplicate; what is dead begins anew.
-- KEYS clock session meta ready slots state payload dead, then the done buckets that the entries name
-- ARGV run_id, sid ('' for a push from outside), n, {{digest, slot, priority, payload, mark, bucket, field, ttl}, …}
--      mark: 'auto', 'run' or 'none' (not an item); bucket: which of the done buckets, 0 for none; ttl: s a mark counts, 0 for ever
-- Returns one character an entry: + accepted, = pending or leased already, . done already; or 'older'
local clock, session, meta, ready, slots = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local state, payload, dead = KEYS[6], KEYS[7], KEYS[8]
local FIRST_BUCKET = 8
local sid, n, entries = ARGV[2], tonumber(ARGV[3]), cmsgpack.unpack(ARGV[4])

local before = sid ~= '' and replay(session, 'push', n)
if before then return before end
local _, wall = advance(clock)
local known = redis.call('HMGET', meta, 'run', 'seq')
local run, seq = tonumber(known[1]) or 1, tonumber(known[2]) or 0

local function is_done(entry)
  if entry[6] == 0 then return false end
  local mark = tonumber(redis.call('HGET', KEYS[FIRST_BUCKET + entry[6]], entry[7]))
  if not mark then return false end
  if mark < 0 then return mark == -run end
  return entry[8] == 0 or math.floor(wall / 1000) - MARK_EPOCH - mark < entry[8]
end

local digests = {}
for i, entry in ipairs(entries) do digests[i] = entry[1] end
local present = bulk_get(state, digests)
local reply, list, states, payloads, seen = {}, {}, {}, {}, {}
for i, entry in ipairs(entries) do
  local digest = entry[1]
  if present[i] or seen[digest] then
    reply[i] = '='
  elseif is_done(entry) then
    reply[i] = '.'
  else
    reply[i], seen[digest], seq = '+', true, seq + 1
    local rank = 32768 - math.max(-32767, math.min(32767, entry[3]))
    local record = {'P', entry[2], string.format('%016.0f', rank * 1e11 + seq), entry[5], 0, 0, '', 0, 0, 0}
    list[#list + 1], list[#list + 2] = digest, record
    states[#states + 1], states[#states + 2] = digest, cmsgpack.pack(record)
    payloads[#payloads + 1], payloads[#payloads + 2] = digest, entry[4]
  end
end
bulk('HSET', state, states)
bulk('HSET', payload, payloads)
make_ready(ready, slots, list)
if #list > 0 then
  for i = 1, #list, 2 do redis.call('HDEL', dead, list[i]) end
  redis.call('HSET', meta, 'seq', int(seq))
  redis.call('HINCRBY', meta, 'accepted', #list / 2)
end
if #list / 2 < #entries then redis.call('HINCRBY', meta, 'duplicate', #entries - #list / 2) end
local answer = table.concat(reply)
if sid ~= '' then remember(session, 'push', n, answer) end
return answer
