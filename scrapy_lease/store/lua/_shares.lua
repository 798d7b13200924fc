-- How many permits a session gets: its share first, then what is kept for nobody.

-- What is in force: what an operator set, else the strictest limit of the sessions that live.
local function limit_of(ask, now)
  local most = tonumber(redis.call('HGET', words, ask.rule))
  if most then return most end
  most = ask.limit
  for other, its in pairs(people) do
    if its[LIMIT] < most and deadline_of(sessions, other) > now then most = its[LIMIT] end
  end
  return most
end

-- The share of a session, what is kept for others, how many of them wait. An equal part of the limit is kept for who used
-- it in the last window, or asked in vain lately; from the middle of the window on ever less of it.
local function claims(sid, most, length, finish)
  local others, waiting, kept = {}, 0, 0
  for other, its in pairs(people) do
    local unmet = is_recent(its[SEEN], RECENT) and its[UNMET] or 0
    if other ~= sid and is_recent(its[SEEN], SILENT) and its[HAD] + its[BEFORE] + unmet > 0 then
      others[#others + 1] = {its[HAD], math.max(its[BEFORE], its[HAD] + unmet)}
      if unmet > 0 then waiting = waiting + 1 end
    end
  end
  local share = math.max(1, math.floor(most / (#others + 1)))
  for _, its in ipairs(others) do kept = kept + math.max(0, math.min(share, its[2]) - its[1]) end
  return share, math.floor(kept * math.min(1, 2 * (finish - wall) / length) + 0.5), waiting
end

-- `own`: what is missing to its share. Of the rest a part each, where others wait too: one where it is tight.
local function grant(want, room, own, kept, waiting)
  local first = math.max(0, math.min(want, own, room))
  local rest = room - first - kept
  if waiting > 0 and rest > 1 then rest = math.max(1, math.floor(rest / (waiting + 1))) end
  return first + math.max(0, math.min(want - first, rest))
end

-- Spread evenly: no more than the part of the limit that is due by now, and a twentieth.
local function paced(room, most, wait, start, length)
  local due = math.max(1, math.floor(most * math.min(1, (wall - start) / length + 0.05) + 0.001))
  if due - count >= room then return room, wait end
  return due - count, math.ceil(length / 20)
end
