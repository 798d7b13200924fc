-- Removes done marks, so that what they name is fetched again when it is pushed. What is in the backlog or dead is not
-- done: its mark stays.
-- KEYS state dead, then the done bucket of each digest
-- ARGV run_id, digest, digest, …
-- Returns how many there were
local state, dead = KEYS[1], KEYS[2]
local FIRST_BUCKET = 2

local removed = 0
for i = 2, #ARGV do
  local digest = ARGV[i]
  if redis.call('HEXISTS', state, digest) == 0 and redis.call('HEXISTS', dead, digest) == 0 then
    removed = removed + redis.call('HDEL', KEYS[FIRST_BUCKET + i - 1], string.sub(digest, 9))
  end
end
return removed
