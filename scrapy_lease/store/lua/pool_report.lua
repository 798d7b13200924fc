-- A session says which resources it holds: before it takes any, after the server restarted, or after it was lost and opened
-- anew (previous). What is its own stays; what the lost one has still, or is free, is leased to it under a new fence;
-- all else is lost to it. What the store says it holds but it did not report comes back.
-- ARGV run_id, sid, n, {ids, fences, previous, verb, told}; told: what else is known of an account, {permits, day}
-- Returns run_id and the fences now held, one for each entry, 0 where it is lost, joined by spaces; or 'lost'; or 'older'
local run_id, sid, n = ARGV[1], ARGV[2], tonumber(ARGV[3])
local ids, fences, previous, verb, told = unpack(cmsgpack.unpack(ARGV[4]))

generation(clock, sessions, run_id, now)
if deadline_of(sessions, sid) <= now then return 'lost' end
local before = replay(session, verb, n)
if before then return before end

local fence, reply, kept = next_fence(clock, micros), {}, {}

local function lease_anew(id, why)
  kind.hold({id}, fence .. at_once .. sid)
  redis.call('SADD', held, id)
  tell('take', sid, fence, why, id)
  return fence
end

local function free_for_it(id, value)
  if has_expired(value, at_once) then return false end
  return kind.claim(id)
end

for i, id in ipairs(ids) do
  local value, lease = redis.call('HGET', resources, id), kind.lease_of(id, sid)
  reply[i] = '0'
  if lease and is_lease_of(lease, sid, fences[i]) then
    reply[i] = fences[i]
  elseif previous ~= '' and is_lease_of(kind.lease_of(id, previous) or '', previous, fences[i]) then
    end_lease(id, previous, held_by_other)
    reply[i] = lease_anew(id, 'kept')
  elseif value and not lease and free_for_it(id, value) then
    reply[i] = lease_anew(id, 'reported')
  end
  if reply[i] ~= '0' then
    kept[id] = true
    if told and told[i] then kind.told(id, unpack(told[i])) end
  end
end

for _, id in ipairs(redis.call('SMEMBERS', held)) do
  local lease = kind.lease_of(id, sid)
  if not lease or holder_of(lease) ~= sid then
    redis.call('SREM', held, id)
  elseif not kept[id] then
    end_lease(id, sid, held)
    tell('back', sid, string.sub(lease, 1, FENCE), 'unreported', id)
    come_back(id, redis.call('HGET', resources, id), now + kind.pause())
  end
end
if next(kept) then redis.call('ZADD', members, 'NX', int(now), sid) end
local answer = run_id .. ' ' .. table.concat(reply, ' ')
remember(session, verb, n, answer)
finish()
return answer
