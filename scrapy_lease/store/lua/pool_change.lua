-- What an operator does to resources; repeating it changes nothing more.
-- ARGV run_id, {verb, ids}
--      drain: nobody gets it any more; its holder may go on      undrain: as if it had never been drained or revoked
--      revoke: the same, and its holder is to give it back at once; a provider cannot bring it back
--      free: undrained, its rests are over, and so is its lease: the holder is told so, and others are served after
--      the longest time that a session lives without a word, whatever is asked meanwhile
-- Returns one character an id: + changed, = it was so already, - unknown
local verb, ids = unpack(cmsgpack.unpack(ARGV[2]))

local function set(id, value, flag, strikes)
  value = resource(flag, strikes, expiry_of(value), exit_of(value), body_of(value))
  redis.call('HSET', resources, id, value)
  return value
end

local function put_aside(id, value, flag)
  if flag_of(value) == flag or flag_of(value) == REVOKED then return '=' end
  set(id, value, flag, strikes_of(value))
  local its = kind.holders(id)
  for _, lease in ipairs(flag == REVOKED and its or {}) do redis.call('ZADD', recalls, 0, holder_of(lease) .. '\0' .. id) end
  if #its > 0 then kind.withdraw(id) elseif not is_in_doubt(id, value) then leave(id, value) end
  return '+'
end

local verb_of = {
  drain = function(id, value) return put_aside(id, value, DRAINED) end,
  revoke = function(id, value) return put_aside(id, value, REVOKED) end,
  undrain = function(id, value)
    if flag_of(value) == PLAIN then return '=' end
    value = set(id, value, PLAIN, strikes_of(value))
    local its = kind.holders(id)
    for _, lease in ipairs(its) do redis.call('ZREM', recalls, holder_of(lease) .. '\0' .. id) end
    if #its > 0 then
      kind.offer(id)
    elseif not is_in_doubt(id, value) then
      come_back(id, value, now)
    end
    return '+'
  end,
  free = function(id, value)
    local its = kind.holders(id)
    local is_doubtful = is_in_doubt(id, value)
    clear_rests(id)
    kind.pardon(id, #its > 0)
    value = set(id, value, PLAIN, 0)
    if is_doubtful then return '+' end
    if #its == 0 then
      leave(id, value)
      come_back(id, value, now)
      return '+'
    end
    for _, lease in ipairs(its) do
      redis.call('ZADD', recalls, 0, holder_of(lease) .. '\0' .. id)
      tell('back', holder_of(lease), string.sub(lease, 1, FENCE), 'freed', id)
    end
    redis.call('HDEL', leases, id)
    kind.withdraw(id)
    -- Its exit stays taken too: who held it may not have heard of it yet.
    redis.call('ZADD', resting, int(now + (tonumber(redis.call('HGET', clock, 'ttl_max')) or 60000)), id)
    return '+'
  end,
}

local reply = {}
for i, id in ipairs(ids) do
  local value = redis.call('HGET', resources, id)
  reply[i] = value and (verb_of[verb] or kind.changes[verb])(id, value) or '-'
  if reply[i] == '+' then tell(verb, '', '', '', id) end
end
finish()
return table.concat(reply)
