-- Of accounts, for pool_settle: what a session may say besides.
--      b: back, {delay, permits not spent, the day they were of}
--      u: how it did, {results, least, minimum, first, longest, share, {site, age, ms, …}}: results: + or - for each use
--         since the last word; with least of them at hand, and fewer than minimum thousandths good, it is demoted; answers
--         that came age ms ago and took so many ms
--      s: slow, {site, age, ms, rest}: it cools if others were answered twice as fast at that site meanwhile
--      c: cools, {ms, …}: the site says so; ends the lease   d: demoted, {why, first, longest, share, …}: ends the lease;
--         of both the permits not spent, and their day, may follow
--      j: jar, {bytes}: kept for whoever holds it next
-- Of u and s the answer ! says that it is left alone as soon as it is given back, = that too many are already.
do

local sid = ARGV[2]
local WINDOW, PACES, WITNESSES = 50, 64, 3 -- results that count; answers of a site; those that a slow one is held against

-- A fault that all have is the site's: half of the pool goes on.
local function is_spared()
  local ailing = tonumber(redis.call('HGET', meta, 'ailing')) or 0
  return (redis.call('ZCARD', bench) + redis.call('ZCARD', resting) + ailing + 1) * 2 > redis.call('HLEN', resources)
end

local function add_paces(id, samples)
  local rows = {}
  for i = 1, #samples, 3 do
    local site, age, ms = samples[i], samples[i + 1], samples[i + 2]
    local packed = not rows[site] and redis.call('HGET', paces, site)
    rows[site] = rows[site] or packed and cmsgpack.unpack(packed) or {}
    table.insert(rows[site], {now - age - ms, ms, id})
    if #rows[site] > PACES then table.remove(rows[site], 1) end
  end
  for site, its in pairs(rows) do redis.call('HSET', paces, site, cmsgpack.pack(its)) end
end

-- The median of what others were answered that asked after `began`; nil: too few were.
local function median_since(began, site, id)
  local packed, found = redis.call('HGET', paces, site), {}
  for _, row in ipairs(packed and cmsgpack.unpack(packed) or {}) do
    if row[1] >= began and row[3] ~= id then found[#found + 1] = row[2] end
  end
  table.sort(found)
  return #found >= WITNESSES and found[math.ceil(#found / 2)] or nil
end

function kind.add_verbs(verb_of, records, end_of)
  local function demote(id, first, longest, share)
    local its, strikes = state_of(id), strikes_of(records[id]) + 1
    records[id] = with_strikes(records[id], strikes)
    redis.call('HSET', resources, id, records[id])
    its[LAYER], its[MARKS] = COLD, ''
    return rest(strikes, first, longest, share)
  end

  function verb_of.u(id, fence, results, least, minimum, first, longest, share, samples)
    local its = state_of(id)
    add_paces(id, samples)
    if its[TILL] > now then return '!' end
    its[MARKS] = string.sub(its[MARKS] .. results, -WINDOW)
    local _, good = string.gsub(its[MARKS], '%+', '')
    keep(id)
    if #its[MARKS] < least or good * 1000 >= minimum * #its[MARKS] then return '+' end
    if is_spared() then return '=' end
    ail(id, demote(id, first, longest, share), sid)
    tell('demote', sid, fence, 'failures', id)
    return '!'
  end

  function verb_of.s(id, fence, site, age, ms, length)
    if state_of(id)[TILL] > now then return '!' end
    local median = median_since(now - age - ms, site, id)
    add_paces(id, {site, age, ms})
    if not median or ms <= 2 * median then return '+' end
    if is_spared() then return '=' end
    ail(id, now + length, sid)
    tell('cool', sid, fence, 'slow', id)
    return '!'
  end

  function verb_of.c(id, fence, length, unspent, day)
    kind.returned(id, unspent, day)
    end_of(id, fence, 'cool')
    local its = state_of(id)
    its[TILL] = math.max(its[TILL], now + length)
    recall_others(id, '')
    come_back(id, records[id], now)
    return '+'
  end

  function verb_of.d(id, fence, why, first, longest, share, unspent, day)
    kind.returned(id, unspent, day)
    end_of(id, fence, 'demote ' .. why)
    state_of(id)[TILL] = demote(id, first, longest, share)
    recall_others(id, '')
    come_back(id, records[id], now)
    return '+'
  end

  function verb_of.j(id, _, bytes)
    redis.call('HSET', jars, id, bytes)
    return '+'
  end
end

end
