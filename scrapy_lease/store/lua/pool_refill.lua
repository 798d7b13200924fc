-- Who fills a pool up, how much of what is bought may be bought, and when: one session at a time has the duty, which
-- passes on when it gives no word for some seconds; the limits are those of all sessions together.
-- ARGV run_id, sid, n, {verb, state, limits, …}: verb: the name of this lane of numbered calls; limits are {most, window
--      in ms, 1 if calls are counted, not resources}, their counters the keys that follow those of a pool; state is
--      ask: is the pool low, and may I buy? {floor, batch, target, most}: floor: as many should be free; batch: as many
--           are bought at a time; target: not 0: as many should be there, free or not, in the place of floor and batch;
--           most: as many are bought at once at most, 0: any number
--      busy: I am still at what I was granted
--      done: I am not any more, {bought, gained, failed}: bought: what counts of what was granted, the rest is given
--            back; gained: as many were new to the pool; failed, if it did: {first, longest, share, least}: nobody buys
--            for first ms, doubled with each failure in a row up to longest, less a quarter of it times share / 1000,
--            but for least ms at least
-- With daily (see _account_refill) no floor counts: what is bought is bought once a day, or while the pool knows nothing.
-- Returns {status, count, wait in ms, wall clock, forecast, number of a limit, how many became active}; status is
--         buy: count, and the duty is mine | enough | duty: another session has it, for wait | pause: it failed, wait |
--         limit: it is reached, for wait | busy: the duty is mine still | passed: it is not | done | lost | older;
--         or {'days', wall}: daily has no moments around now, and nothing was done
-- Use is what left free, on an average of the last minutes; forecast: how much of it is to be expected soon. What was
-- granted and never answered for counts as bought.
local sid, n, call = ARGV[2], tonumber(ARGV[3]), cmsgpack.unpack(ARGV[4])
local DUTY = 4000                         -- ms without a word after which the duty passes on
local SEEN, RIVALS = 3000, 100            -- ms: a waiter that asks counts; waiters that are looked at
local MEMORY, AHEAD, SOON = 180000, 30000, 10000 -- ms: of use; of use that is bought ahead; of expiry that is

if deadline_of(sessions, sid) <= now then return {'lost'} end
local before = replay(session, call.verb, n)
if before == 'older' then return {'older'} end
if before then return cmsgpack.unpack(before) end

local packed = redis.call('HMGET', meta, 'duty', 'use', 'gained', 'pause', 'strikes')
local duty = packed[1] and cmsgpack.unpack(packed[1]) -- {session, until, granted, {window of each limit, …}}
local is_mine = duty and duty[1] == sid
local free_now, gained = redis.call('ZCARD', free), tonumber(packed[3]) or 0
local in_play = free_now + redis.call('HLEN', leases)

local moved = 0
local function reply(status, count, wait, forecast, limit)
  local row = {status, count or 0, wait or 0, wall, forecast or 0, limit or 0, moved}
  remember(session, call.verb, n, cmsgpack.pack(row))
  return row
end

local function keep_duty(granted, windows)
  redis.call('HSET', meta, 'duty', cmsgpack.pack({sid, now + DUTY, granted, windows}))
end

local function counted(i)
  local number = math.floor(wall / call.limits[i][2])
  local row = redis.call('HMGET', KEYS[kind.keys + i], 'window', 'count')
  return row[1] == int(number) and tonumber(row[2]) or 0, number
end

-- The number says when a window is over, so no expiry that was lost or is late can prolong one.
local function set_count(i, number, count)
  redis.call('HSET', KEYS[kind.keys + i], 'window', int(number), 'count', int(count))
  redis.call('PEXPIRE', KEYS[kind.keys + i], int(2 * call.limits[i][2]))
end

local function give_back(bought)
  for i, limit in ipairs(call.limits) do
    local count, number = counted(i)
    if limit[3] == 0 and duty[4][i] == number then set_count(i, number, math.max(0, count + bought - duty[3])) end
  end
end

local function note_failure(first, longest, share, least)
  local strikes = (tonumber(packed[5]) or 0) + 1
  local whole = math.min(longest, first * 2 ^ math.min(strikes - 1, 30))
  local pause = math.max(least, whole * (1 - share / 4000))
  redis.call('HSET', meta, 'strikes', strikes, 'pause', int(now + pause))
end

local function forecast()
  local at, was_free, was_gained, rate = unpack(packed[2] and cmsgpack.unpack(packed[2]) or {now, free_now, gained, 0})
  local age = now - at
  if age >= 1000 then
    local weight = math.exp(-age / MEMORY)
    rate = rate * weight + (was_free + gained - was_gained - free_now) / age * (1 - weight)
  end
  if age >= 1000 or not packed[2] then
    redis.call('HSET', meta, 'use', cmsgpack.pack({now, free_now, gained, rate}))
  end
  local ending = redis.call('ZCOUNT', expiries, int(wall), int(wall + SOON))
  return math.min(in_play, math.max(ending, math.ceil(rate * AHEAD)))
end

local function missed_by_waiters()
  local missing, sids = 0, redis.call('ZRANGE', waiting, 0, RIVALS - 1)
  for i, ask in ipairs(bulk_get(asks, sids)) do
    local _, seen, wants = unpack(cmsgpack.unpack(ask))
    if seen + SEEN > now and deadline_of(sessions, sids[i]) > now then missing = missing + wants end
  end
  return missing
end

local function buy(count, expected)
  local windows, spent = {}, {}
  for i, limit in ipairs(call.limits) do
    spent[i], windows[i] = counted(i)
    local left = limit[1] - spent[i]
    if left < 1 then return reply('limit', 0, (windows[i] + 1) * limit[2] - wall, expected, i) end
    if limit[3] == 0 then count = math.min(count, left) end
  end
  for i, limit in ipairs(call.limits) do set_count(i, windows[i], spent[i] + (limit[3] == 0 and count or 1)) end
  keep_duty(count, windows)
  return reply('buy', count, DUTY, expected)
end

local function ask()
  local expected, is_time, moment = forecast(), nil, nil
  if call.daily then
    moved, is_time, moment = kind.daily(call)
    if moved == 'days' then return {'days', wall} end
  end
  if duty and not is_mine and duty[2] > now and deadline_of(sessions, duty[1]) > now then
    return reply('duty', 0, duty[2] - now, expected)
  end
  redis.call('HDEL', meta, 'duty')
  local pause = tonumber(packed[4]) or 0
  if pause > now then return reply('pause', 0, pause - now, expected) end
  local count = call.target - redis.call('HLEN', resources)
  if call.daily then
    count = is_time and call.batch or 0
    if is_time then redis.call('HSET', meta, 'buying', int(moment)) end
  elseif call.target == 0 then
    count = call.floor + expected + missed_by_waiters() > free_now and call.batch or 0
  end
  if call.most > 0 then count = math.min(count, call.most) end
  if count < 1 then return reply('enough', 0, 0, expected) end
  return buy(count, expected)
end

local function done()
  if call.gained > 0 then redis.call('HINCRBY', meta, 'gained', call.gained) end
  if not is_mine then return reply('passed') end
  give_back(call.bought)
  redis.call('HDEL', meta, 'duty')
  if call.failed then note_failure(unpack(call.failed)) end
  if call.gained > 0 then redis.call('HDEL', meta, 'strikes', 'pause') end
  if call.daily and not call.failed then redis.call('HSET', meta, 'bought', redis.call('HGET', meta, 'buying') or 0) end
  return reply('done')
end

if call.state == 'ask' then return ask() end
if call.state == 'done' then return done() end
if not is_mine then return reply('passed') end
keep_duty(duty[3], duty[4])
return reply('busy', duty[3], DUTY)
