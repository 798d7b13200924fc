-- Removes dead letters with their requests. One that was pushed anew meanwhile is not among them any more and stays.
-- KEYS dead payload
-- ARGV run_id, digest, digest, …
-- Returns how many there were
local dead, payload = KEYS[1], KEYS[2]

local removed = 0
for i = 2, #ARGV do
  if redis.call('HDEL', dead, ARGV[i]) == 1 then
    redis.call('HDEL', payload, ARGV[i])
    removed = removed + 1
  end
end
return removed
