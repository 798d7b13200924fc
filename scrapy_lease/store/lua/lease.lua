-- Grants ready items to a live session, best order first, no download slot more than its room; tells how the run stands.
-- KEYS clock sessions session meta members producing ready slots delayed state held control
-- ARGV run_id, sid, n, {want, rooms, job}: rooms maps a slot to how many more it may take; an unlisted slot may take
--      three quarters of what is left, so that one host never fills the window
-- Returns {{'ok', grace, ready, delayed, leased, due, drained, paused, expired session or ''}, fence, digests in one
--          string, {for each its value in state, '' if it is not held}}
--         | {{'lost'}} | {{'report'}} | {{'older'}}
local clock, sessions, session, meta = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local members, producing, ready, slots = KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local delayed, state, held, control = KEYS[9], KEYS[10], KEYS[11], KEYS[12]
local run_id, sid, n, ask = ARGV[1], ARGV[2], tonumber(ARGV[3]), cmsgpack.unpack(ARGV[4])
local sub = string.sub

local now, wall, micros = advance(clock)
local number, grace = generation(clock, sessions, run_id, now)
if deadline_of(sessions, sid) <= now then return {{'lost'}} end
if redis.call('HGET', session, 'generation') ~= int(number) then return {{'report'}} end
local paused = redis.call('HEXISTS', control, 'pause:' .. ask.job) == 1

local function wake_due()
  local due = redis.call('ZRANGEBYSCORE', delayed, '-inf', int(now), 'LIMIT', 0, 100)
  if #due == 0 then return end
  local items = {}
  for i, value in ipairs(bulk_get(state, due)) do
    if value then items[#items + 1], items[#items + 2] = due[i], value end
  end
  make_ready(meta, ready, slots, items)
  bulk('ZREM', delayed, due)
end

-- Appends up to room digests of the slot to picked and takes them out of ready; what is left of a member stays in it.
local function pick_from(slot, room, picked)
  local head, limit, wanted, size = #slot + 1 + ORDER, math.ceil(room / PER_MEMBER), room, #picked
  local last = size + room
  while wanted > 0 do
    local found = first_of(ready, slot, limit)
    if #found == 0 then break end
    local used, rest = 0, nil
    while wanted > 0 and used < #found do
      used = used + 1
      local entry = found[used]
      local stop = math.min(#entry, head + wanted * DIGEST)
      for first = head + 1, stop, DIGEST do
        size = size + 1
        picked[size] = sub(entry, first, first + DIGEST - 1)
      end
      if stop < #entry then
        local order = order_after(sub(entry, #slot + 2, head), (stop - head) / DIGEST)
        rest = slot .. '\0' .. order .. sub(entry, stop + 1)
      end
      wanted = last - size
    end
    redis.call('ZREMRANGEBYLEX', ready, '[' .. slot .. '\0', '[' .. found[used])
    if rest then redis.call('ZADD', ready, 0, rest) end
    limit = limit * 2
  end
  rank_slot(ready, slots, slot)
  return room - wanted
end

local function pick()
  local left, picked, listed = ask.want, {}, 0
  for _ in pairs(ask.rooms) do listed = listed + 1 end
  for _, slot in ipairs(redis.call('ZRANGE', slots, 0, ask.want + listed - 1)) do
    if left <= 0 then break end
    local room = math.min(ask.rooms[slot] or math.max(1, math.floor(left * 0.75)), left)
    if room > 0 then left = left - pick_from(slot, room, picked) end
  end
  if #picked > 0 then redis.call('HINCRBY', meta, 'ready', -#picked) end
  return picked
end

local function grant(picked)
  if #picked == 0 then return '0', '', {} end
  local values, leases, at, fence = bulk_get(state, picked), {}, 0, next_fence(clock, micros)
  for i = 1, #picked do
    if values[i] then
      leases[at + 1], leases[at + 2] = picked[i], fence
      at = at + 2
    else
      values[i] = ''
    end
  end
  hold(held, leases)
  return fence, table.concat(picked), values
end

-- What an earlier call granted, as far as the session still holds it under the same fence.
local function granted_before(fence, digests)
  local list, values = {}, {}
  for at = 1, #digests, DIGEST do list[#list + 1] = sub(digests, at, at + DIGEST - 1) end
  local leases = bulk_get(held, list)
  for i, value in ipairs(bulk_get(state, list)) do
    values[i] = value and is_held(leases[i], fence) and value or ''
  end
  return fence, digests, values
end

local before, fence, digests, values = replay(session, 'lease', n), '0', '', {}
if before == 'older' then return {{'older'}} end
if before then
  fence, digests, values = granted_before(sub(before, 1, FENCE), sub(before, FENCE + 1))
elseif ask.want > 0 then
  if not grace and not paused then
    wake_due()
    fence, digests, values = grant(pick())
  end
  -- Also where nothing was granted: a copy of this call that comes late must not take what nobody will hear of.
  remember(session, 'lease', n, fence .. digests)
end

local pending, waiting = tonumber(redis.call('HGET', meta, 'ready')) or 0, redis.call('ZCARD', delayed)
local known = redis.call('HLEN', state)
local drained = known == 0
if drained then
  for _, other in ipairs(redis.call('SMEMBERS', producing)) do
    if deadline_of(sessions, other) > now then drained = false end
  end
end
local soonest = redis.call('ZRANGE', delayed, 0, 0, 'WITHSCORES')[2]
local expired = not grace and redis.call('ZRANGEBYSCORE', members, '-inf', int(now), 'LIMIT', 0, 1)[1] or ''
return {{'ok', grace and 1 or 0, pending, waiting, math.max(0, known - pending - waiting),
  soonest and math.max(0, tonumber(soonest) - now) or -1, drained and 1 or 0, paused and 1 or 0, expired},
  fence, digests, values}
