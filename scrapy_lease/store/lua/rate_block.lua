-- Blocks a key for which a site asked for a pause, for all hosts; after enough addresses within a minute the site itself.
-- KEYS clock blocks strikes witnesses: blocks ZSET key -> lease clock until which nothing of it is sent; strikes HASH
--      key -> {pauses in a row of which nobody said how long, lease clock at which the last ends}; witnesses ZSET of this
--      site: address -> lease clock at which it was asked to pause
-- ARGV run_id, {key, site, address, wait, first, longest, share, escalate}: site: the key of the site; wait in ms, 0: the
--      site did not say how long: first ms, doubled with each pause in a row up to longest, less a quarter times share / 1000
-- Returns {ms for which the key is blocked, ms for which the site is}. A pause that runs is no new one, so what was under
-- way when it began changes nothing, and neither does a repeated call.
local clock, blocks, strikes, witnesses = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local ask = cmsgpack.unpack(ARGV[2])
local MINUTE, KEPT = 60000, 86400000
local now = advance(clock)

local function steps(key)
  local packed = redis.call('HGET', strikes, key)
  local number, ends = unpack(packed and cmsgpack.unpack(packed) or {0, 0})
  -- Whoever kept quiet for as long as the last pause was, and a minute, begins anew.
  return number > 0 and now - ends < MINUTE + ask.first * 2 ^ (number - 1) and number + 1 or 1
end

local function block(key)
  local running = tonumber(redis.call('ZSCORE', blocks, key) or 0)
  local ends = math.max(running, now + ask.wait)
  if ask.wait == 0 and running <= now then
    local number = steps(key)
    ends = now + math.min(ask.longest, ask.first * 2 ^ math.min(number - 1, 30)) * (1 - ask.share / 4000)
    redis.call('HSET', strikes, key, cmsgpack.pack({number, ends}))
    redis.call('PEXPIRE', strikes, KEPT)
  end
  redis.call('ZADD', blocks, int(ends), key)
  return math.ceil(ends - now)
end

redis.call('ZADD', witnesses, int(now), ask.address)
redis.call('ZREMRANGEBYSCORE', witnesses, '-inf', int(now - MINUTE))
redis.call('PEXPIRE', witnesses, MINUTE)
return {block(ask.key), redis.call('ZCARD', witnesses) >= ask.escalate and block(ask.site) or 0}
