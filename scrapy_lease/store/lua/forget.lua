-- Removes done marks, so that what they name is fetched again when it is pushed.
-- KEYS the done bucket of each mark
-- ARGV run_id, then the field of each mark
-- Returns how many there were
local removed = 0
for i, bucket in ipairs(KEYS) do removed = removed + redis.call('HDEL', bucket, ARGV[i + 1]) end
return removed
