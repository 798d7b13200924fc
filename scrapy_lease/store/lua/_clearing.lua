-- Second part of pool_take: what a call clears away on its way, up to MOVES of each kind.
local function clear_away()
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', expiries, '-inf', int(wall), 'LIMIT', 0, MOVES)) do
    local value = redis.call('HGET', resources, id)
    if redis.call('HEXISTS', leases, id) == 1 or is_in_doubt(id, value) then
      redis.call('ZREM', expiries, id)
    else
      vanish(id, value, 'expired')
    end
  end
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', resting, '-inf', int(now), 'LIMIT', 0, MOVES)) do
    redis.call('ZREM', resting, id)
    local value, until_when = redis.call('HGET', resources, id), banned_until(id)
    if has_expired(value, at_once) then
      vanish(id, value, 'expired')
    elseif flag_of(value) == PLAIN and until_when > now then
      redis.call('ZADD', resting, int(until_when), id)
    elseif flag_of(value) == PLAIN then
      enter(id, value, now)
    else
      vacate(id, value)
    end
  end
  kind.clear_away()
  clear_ties()
end
