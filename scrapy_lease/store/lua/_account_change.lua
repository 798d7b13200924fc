-- Of accounts, for pool_change: what an operator may do besides.
--      cool: nobody gets it for so many ms, its holder is to give it back
kind.changes = {}

function kind.changes.cool(id, value)
  local _, _, length = unpack(cmsgpack.unpack(ARGV[2]))
  if is_in_doubt(id, value) then return '=' end
  if #leases_on(id) > 0 then
    ail(id, now + length, '')
    return '+'
  end
  local its = state_of(id)
  its[TILL] = math.max(its[TILL], now + length)
  put(id, value, now)
  return '+'
end
