-- Removes dead letters with their requests and marks. One that was pushed anew meanwhile is not among them any more and
-- stays.
-- KEYS dead payload, then the done bucket of each digest
-- ARGV run_id, digest, digest, …
-- Returns how many there were
local dead, payload = KEYS[1], KEYS[2]
local FIRST_BUCKET = 2

local removed = 0
for i = 2, #ARGV do
  local digest = ARGV[i]
  if redis.call('HDEL', dead, digest) == 1 then
    redis.call('HDEL', payload, digest)
    redis.call('HDEL', KEYS[FIRST_BUCKET + i - 1], string.sub(digest, 9))
    removed = removed + 1
  end
end
return removed
