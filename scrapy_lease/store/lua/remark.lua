-- Gives items of the backlog their marks again, after all marks were removed.
-- KEYS clock meta state, then the done bucket of each digest
-- ARGV run_id, digest, digest, …
-- Returns how many got one
local clock, meta, state = KEYS[1], KEYS[2], KEYS[3]
local FIRST_BUCKET = 3
local _, wall = advance(clock)
local run = tonumber(redis.call('HGET', meta, 'run')) or 1

local made = 0
for i = 2, #ARGV do
  local digest = ARGV[i]
  local code = string.sub(redis.call('HGET', state, digest) or 'n', 1, 1)
  if code ~= 'n' then
    local value = code == 'r' and -run or math.floor(wall / 1000) - MARK_EPOCH
    made = made + redis.call('HSETNX', KEYS[FIRST_BUCKET + i - 1], string.sub(digest, 9), int(value))
  end
end
return made
