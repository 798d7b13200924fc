-- Of accounts, for pool_take: its day, its hours, permits, and the way from cold to active.
-- ask.account: {holders: sessions that may hold one, 0: any number; quota: permits in a day, 0: any number; interval: ms
--      between uses; active: ms after which one that nobody uses is cold; slice: permits granted at a time; days: midnights, in
--      ms; open: {from, to} pairs of hours of work, none: always; more: {id, fence} pairs: leases that need permits}
-- Adds to the answer {ms until the hours of work, cold, benched, spent, {id, permits, start, end, day, used}, …, jars};
-- permits -1: any number; start: lease clock from which, end: wall clock until which they are good, 0: for ever; used: those
-- granted in that day by now. Of an account that several may hold each permit has a start of its own, and is good for a part of
-- the interval, by which these are further apart. No jar: nil.
-- {'days', wall}: nothing was done, since the server's clock is not within the days that were sent.
do

local sid = ARGV[2]
local said, closing, shut, day_end = nil, 0, 0, 0
local mine, taken, purses = {}, 0, {}
local LATE = 0.25                        -- part of an interval by which a use may come late

local function window_around(list)
  for _, window in ipairs(list) do
    if window[1] <= wall and wall < window[2] then return 0, window[2] end
    if wall < window[1] then return window[1] - wall, 0 end
  end
  return LONGEST_DAY, 0
end

function kind.begin(account)
  said = account
  for i = 1, #said.days - 1 do
    if said.days[i] <= wall and wall < said.days[i + 1] then day_end = said.days[i + 1] end
  end
  if day_end == 0 then return 'days' end
  if #said.open > 0 then shut, closing = window_around(said.open) end
  if holders ~= said.holders or interval ~= said.interval or quota ~= said.quota then
    holders, interval, quota = said.holders, said.interval, said.quota
    redis.call('HSET', meta, 'holders', int(holders), 'interval', int(interval), 'quota', int(quota))
  end
end

local function rouse(ids)
  for _, id in ipairs(ids) do kind.offer(id) end
end

function kind.clear_away()
  rouse(redis.call('ZRANGEBYSCORE', spent, '-inf', int(wall), 'LIMIT', 0, MOVES))
  rouse(redis.call('ZRANGEBYSCORE', spent, int(wall + LONGEST_DAY), '+inf', 'LIMIT', 0, MOVES))
  for _, id in ipairs(redis.call('ZRANGE', spent, 0, 7)) do
    if not is_spent(state_of(id)) then kind.offer(id) end -- the quota is another one now
  end
  rouse(redis.call('ZRANGEBYSCORE', bench, '-inf', int(now), 'LIMIT', 0, MOVES))
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', free, '-inf', int(now - said.active), 'LIMIT', 0, MOVES)) do
    if #leases_on(id) == 0 then
      state_of(id)[LAYER] = COLD
      kind.offer(id)
      tell('cold', '', '', 'unused', id)
    end
  end
end

function kind.room() return shut > 0 and 0 or math.huge end

function kind.promote(wanted)
  if shut > 0 then return end
  local usable = redis.call('ZCOUNT', free, '-inf', int(now)) - (holders ~= 1 and redis.call('SCARD', held) or 0)
  for _ = 1, math.min(MOVES, wanted - math.max(0, usable)) do
    local id = redis.call('LPOP', cold)
    if not id then return end
    local its = state_of(id)
    its[LISTED], its[LAYER] = 0, ACTIVE
    kind.offer(id)
    tell('promote', sid, '', '', id)
  end
end

-- A session holds each account once, so it cannot wait for more than there are.
function kind.most(holds) return holders == 1 and math.huge or math.max(0, redis.call('HLEN', resources) - holds) end

-- Does it matter to the others who gets one? Not where any number may hold it.
function kind.is_scarce() return holders > 0 end

function kind.spare() return redis.call('LLEN', cold) end

function kind.in_play(clean)
  if holders == 1 then return clean + redis.call('HLEN', leases) + kind.spare() end
  return (holders == 0 and 1e6 or holders) * (math.max(clean, redis.call('HLEN', leases)) + kind.spare())
end

function kind.sample(want) return want + (holders ~= 1 and math.min(MOVES, redis.call('SCARD', held) + taken) or 0) end

function kind.may_take(id)
  local its = state_of(id)
  if mine[id] or holders ~= 1 and redis.call('SISMEMBER', held, id) == 1 then return false end
  if not is_spent(its) then return true end
  kind.offer(id)
  return false
end

function kind.take_out(set, ids)
  for _, id in ipairs(ids) do mine[id] = true end
  taken = taken + #ids
  if holders == 1 then bulk('ZREM', set, ids) end
end

-- Permits are counted as they are granted: whatever becomes of the session, no more than these are spent.
local function grant_permits(id)
  local its, count, start = state_of(id), -1, 0
  if not counts(its) then its[USED], its[DAY] = 0, day_end end
  if quota > 0 then count = math.max(0, math.min(said.slice, quota - its[USED])) end
  if holders ~= 1 and interval > 0 and count ~= 0 then
    count, start = 1, math.max(now, its[NEXT])
    its[NEXT] = start + interval * (1 + LATE)
  end
  if quota > 0 then its[USED] = its[USED] + count end
  local ends = quota > 0 and its[DAY] or 0
  if closing > 0 then ends = ends > 0 and math.min(ends, closing) or closing end
  keep(id)
  purses[#purses + 1] = {id, count, start, ends, its[DAY], its[USED]}
end

function kind.pay(ids)
  for _, id in ipairs(ids) do grant_permits(id) end
  for _, row in ipairs(shut > 0 and {} or said.more) do
    if is_lease_of(kind.lease_of(row[1], sid) or '', sid, row[2]) then grant_permits(row[1]) end
  end
end

function kind.pack() return purses end
function kind.unpack(paid) purses = paid end

function kind.reply(ids)
  return {shut, kind.spare(), redis.call('ZCARD', bench), redis.call('ZCARD', spent), purses, bulk_get(jars, ids)}
end

end
