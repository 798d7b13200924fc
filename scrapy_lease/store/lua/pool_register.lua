-- Takes resources into the pool as their provider gives them, or brings what is known of them up to date: the one place
-- where an expiry is set. A lease, rests and what an operator said stay; another exit counts once nobody holds it.
-- ARGV run_id, sid ('' from outside), n, {ids, expiries, exits, bodies, spreads, verb}: expiry in ms of the server's wall
--      clock, 0: none; spread 0…1000: how early it stands among the free ones, so that those that come together, and end
--      together, are not handed out together
-- Returns one character an entry: + new, = known, . has expired, x revoked and stays so; or 'older';
--         or 'lost': the server knows nothing of the session, so it could not tell a late copy of this call
local sid, n = ARGV[2], tonumber(ARGV[3])
local ids, ends, exit_list, bodies, spreads, verb = unpack(cmsgpack.unpack(ARGV[4]))
if sid ~= '' and redis.call('EXISTS', session) == 0 then return 'lost' end
local before = sid ~= '' and replay(session, verb, n)
if before then return before end

local LONGEST = 3600000 -- ms by which one may stand ahead of its time
local function place_among_free(expiry, spread)
  local life = expiry == 0 and LONGEST or expiry - wall
  return now - math.floor(math.min(life / 2, LONGEST) * spread / 1000)
end

local function renew(id, known, expiry, exit, body)
  local old, is_leased = exit_of(known), redis.call('HEXISTS', leases, id) == 1
  local is_moved = exit ~= old and not is_leased and not is_in_doubt(id, known)
  local value = resource(flag_of(known), strikes_of(known), expiry, is_moved and exit or old, body)
  local rests_for_all = redis.call('ZSCORE', resting, id)
  if is_moved then
    vacate(id, known)
    tell('moved', sid, '', exit, id)
  end
  redis.call('HSET', resources, id, value)
  if is_moved and flag_of(value) == PLAIN and not rests_for_all then
    leave(id, value)
    enter(id, value, now)
  end
  return flag_of(value) == REVOKED and 'x' or '='
end

local reply = {}
for i, id in ipairs(ids) do
  local expiry, exit, body, known = ends[i], exit_list[i], bodies[i], redis.call('HGET', resources, id)
  if known then
    reply[i] = renew(id, known, expiry, exit, body)
  elseif expiry > 0 and expiry <= wall then
    reply[i] = '.'
  else
    local value = resource(PLAIN, 0, expiry, exit, body)
    redis.call('HSET', resources, id, value)
    enter(id, value, place_among_free(expiry, spreads[i]))
    tell('new', sid, '', exit, id)
    reply[i] = '+'
  end
  if reply[i] ~= '.' then
    if expiry > 0 then redis.call('ZADD', expiries, int(expiry), id) else redis.call('ZREM', expiries, id) end
  end
end
local answer = table.concat(reply)
if sid ~= '' then remember(session, verb, n, answer) end
finish()
return answer
