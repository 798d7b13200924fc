-- Ends up to 100 leases of one session that is over (expired, or closed), and forgets it when none is left.
-- ARGV run_id, sid of the session that is over, grace: ms for which what a dead session held serves nobody
-- Returns {ended, left}; {0, -1} while it lives, or its grace or the server's runs
local run_id, sid, pause = ARGV[1], ARGV[2], tonumber(ARGV[3])

local _, grace = generation(clock, sessions, run_id, now)
if not is_to_be_reclaimed(sid, grace, pause) then return {0, -1} end
local ids = redis.call('SRANDMEMBER', held, MOVES)
local why = redis.call('ZSCORE', sessions, sid) == '0' and 'closed' or 'died'
local values = bulk_get(resources, ids)
for i, lease in ipairs(kind.leases_of(ids, sid)) do
  if lease and holder_of(lease) == sid then
    end_lease(ids[i], sid, held)
    tell('back', sid, string.sub(lease, 1, FENCE), why, ids[i])
    come_back(ids[i], values[i], now + kind.pause())
  else
    redis.call('SREM', held, ids[i])
  end
end
local left = redis.call('SCARD', held)
if left == 0 then
  forget(sid)
  redis.call('HDEL', over, sid)
  redis.call('ZREMRANGEBYLEX', recalls, of(sid))
end
finish()
return {#ids, left}
