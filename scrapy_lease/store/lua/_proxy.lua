-- What makes a pool one of proxies: one session at a time holds a resource, and what comes back is free.
kind.keys = 24                           -- those of a pool; what a verb needs besides comes after
kind.is_quick = true                     -- may what comes back go into free without a look at anything but rests and flag?

local function nothing() end
for _, name in ipairs({'leave', 'forget', 'comes_back', 'ended', 'returned', 'withdraw', 'offer', 'clear_away', 'begin',
  'promote', 'pay', 'pack', 'unpack', 'reply', 'add_verbs', 'told', 'pardon', 'daily'}) do kind[name] = nothing end

function kind.place(id, from)
  redis.call('ZADD', redis.call('HEXISTS', rests, id) == 1 and spotted or free, int(from), id)
  arrivals = arrivals + 1
end

function kind.is_doubtful(_, value) return strikes_of(value) == 0 end

-- The lease that a session has of a resource, or that keeps it from that session.
function kind.lease_of(id) return redis.call('HGET', leases, id) end
function kind.leases_of(ids) return bulk_get(leases, ids) end

function kind.hold(ids, lease)
  local leased = {}
  for i, id in ipairs(ids) do leased[2 * i - 1], leased[2 * i] = id, lease end
  hold(leases, leased)
end

function kind.drop(ids) bulk('HDEL', leases, ids) end

function kind.holders(id)
  local lease = redis.call('HGET', leases, id)
  return lease and {lease} or {}
end

-- Takes what nobody holds out of where it is free; was it?
function kind.claim(id) return redis.call('ZREM', free, id) + redis.call('ZREM', spotted, id) > 0 end

-- ms to be waited after the lease of a session that said nothing of it.
function kind.pause() return 0 end

function kind.may_take() return true end
function kind.take_out(set, ids) bulk('ZREM', set, ids) end
function kind.room() return math.huge end
function kind.most() return math.huge end
function kind.is_scarce() return true end
function kind.spare() return 0 end
function kind.in_play(clean) return clean + redis.call('HLEN', leases) end
function kind.sample(want) return want end
