-- Reads several keys at one instant, for people's tools; changes nothing.
-- KEYS one for each read
-- ARGV run_id, {{command, argument, …}, …}: the key comes between command and arguments
-- Returns the reply of each read
local replies = {}
for i, read in ipairs(cmsgpack.unpack(ARGV[2])) do
  replies[i] = redis.call(read[1], KEYS[i], unpack(read, 2))
end
return replies
