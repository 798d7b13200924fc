-- Advances the lease clock, as every call of a session does, and tells what it shows.
-- KEYS clock
-- ARGV run_id
-- Returns {lease clock in ms, the server's wall clock in ms}
local now, wall = advance(KEYS[1])
return {now, wall}
