-- Adds requests to the backlog, each once: what is pending, leased or done already is a duplicate; what is dead begins anew.
-- KEYS clock session meta ready slots state payload dead, then the done buckets that the entries name
-- ARGV run_id, sid ('' for a push from outside), n, {digests, slots, priorities, payloads, codes, buckets, ttls}
--      codes: one character an entry, see the prelude; buckets: which of the done buckets; ttls: s a mark counts, 0 for ever
-- Returns one character an entry: + accepted, = pending or leased already, . done already; or 'older'
local clock, session, meta, ready, slots = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local state, payload, dead = KEYS[6], KEYS[7], KEYS[8]
local FIRST_BUCKET = 8
local sid, n = ARGV[2], tonumber(ARGV[3])

local before = sid ~= '' and replay(session, 'push', n)
if before then return before end
local digests, slot_of, priorities, payloads, codes, buckets, ttls = unpack(cmsgpack.unpack(ARGV[4]))
local _, wall = advance(clock)
local counters = redis.call('HMGET', meta, 'run', 'seq')
local run, seq, seconds = tonumber(counters[1]) or 1, tonumber(counters[2]) or 0, math.floor(wall / 1000)

local present, reply, accepted, seen = bulk_get(state, digests), {}, {}, {}
for i, digest in ipairs(digests) do
  local code = string.sub(codes, i, i)
  if present[i] or seen[digest] then
    reply[i] = '='
  elseif code ~= 'n' and not is_new(KEYS[FIRST_BUCKET + buckets[i]], dead, digest, code, ttls[i], run, seconds) then
    reply[i] = '.'
  else
    reply[i], seen[digest], accepted[#accepted + 1] = '+', true, i
  end
end

-- Entries of one slot and priority get orders that follow each other, so that they share members of ready.
local groups, group_of = {}, {}
for _, i in ipairs(accepted) do
  local rank = rank_of(priorities[i])
  local name = rank .. ':' .. slot_of[i]
  local group = group_of[name]
  if not group then
    group = {rank = rank, slot = slot_of[i]}
    group_of[name], groups[#groups + 1] = group, group
  end
  group[#group + 1] = i
end

local members, states, revived = {}, {}, {}
for _, group in ipairs(groups) do
  for first = 1, #group, PER_MEMBER do
    local bundle, base = {}, order_of(group.rank, seq + 1)
    for at = first, math.min(first + PER_MEMBER - 1, #group) do
      local i = group[at]
      seq = seq + 1
      local order = order_of(group.rank, seq)
      bundle[#bundle + 1], revived[#revived + 1] = digests[i], digests[i]
      states[#states + 1] = digests[i]
      states[#states + 1] = record(string.sub(codes, i, i), 0, 0, order, group.slot, payloads[i])
    end
    members[#members + 1], members[#members + 2], members[#members + 3] = group.slot, base, table.concat(bundle)
  end
end
bulk('HSET', state, states)
add_ready(meta, ready, slots, members, #accepted)
if #accepted > 0 then
  if redis.call('HLEN', dead) > 0 then
    bulk('HDEL', dead, revived)
    bulk('HDEL', payload, revived)
  end
  redis.call('HSET', meta, 'seq', int(seq))
  redis.call('HINCRBY', meta, 'accepted', #accepted)
end
if #accepted < #digests then redis.call('HINCRBY', meta, 'duplicate', #digests - #accepted) end
local answer = table.concat(reply)
if sid ~= '' then remember(session, 'push', n, answer) end
return answer
