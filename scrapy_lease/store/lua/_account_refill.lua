-- Of accounts, for pool_refill: once a local day the cold and the benched ones become active, spread over an hour, and
-- more may be bought. call.daily: moments of the daily refill around now, in ms of the server's wall clock.
-- A moment counts that is the last one, and far from the last one that counted: so another time zone, or another
-- setting, brings no second refill in a day. Which that is, and how many have still to be moved, is in meta: so whoever calls
-- goes on with it, and a call that is made twice moves nothing that was not due.
do

local FAR, SPREAD = 20 * 3600000, 3600000

local function last_moment(moments)
  for i = #moments - 1, 1, -1 do
    if moments[i] <= wall and wall < moments[#moments] then return moments[i] end
  end
end

local function is_due(moment, field)
  local last = tonumber(redis.call('HGET', meta, field)) or 0
  return moment - last >= FAR or last > wall + LONGEST_DAY
end

local function wake_one()
  local id = redis.call('ZRANGE', bench, 0, 0)[1] or redis.call('LINDEX', cold, 0)
  if not id then return false end
  local its = state_of(id)
  its[LAYER], its[TILL], its[MARKS] = ACTIVE, 0, ''
  kind.offer(id)
  tell('promote', '', '', 'daily', id)
  return true
end

-- Returns how many became active, and whether it is time to buy; 'days': the moments are not those around now.
function kind.daily(call)
  local moment = last_moment(call.daily)
  if not moment then return 'days' end
  if redis.call('HEXISTS', meta, 'daily') == 0 then
    redis.call('HSET', meta, 'daily', int(moment)) -- the pool is new: all it has is fresh
  elseif is_due(moment, 'daily') then
    redis.call('HSET', meta, 'daily', int(moment), 'began', int(now), 'moved', 0,
      'total', redis.call('LLEN', cold) + redis.call('ZCARD', bench))
  end
  local row = redis.call('HMGET', meta, 'began', 'moved', 'total')
  local began, before, total = tonumber(row[1]) or now, tonumber(row[2]) or 0, tonumber(row[3]) or 0
  local due = math.min(before + MOVES, math.ceil(total * math.min(1, (now - began) / SPREAD)))
  local moved = before
  while moved < due and wake_one() do moved = moved + 1 end
  if moved < due then total = moved end -- others were promoted meanwhile
  if moved > before then redis.call('HSET', meta, 'moved', moved, 'total', total) end
  return moved - before, is_due(moment, 'bought') or redis.call('HLEN', resources) == 0, moment
end

end
