-- Of a sliding limit: a permit is booked at the end of the slot until which it may be spent, and counts until a window
-- has passed after that. So those that count when one is granted are all that any window with a moment of its life can
-- hold. What a clock that went back finds booked ahead of it counts, unless that is a window ahead.
local function sliding_slot(length, last)
  local slot = math.floor(wall / (length / SLOTS))
  if last and last > slot and last - slot <= SLOTS then slot = last end
  if last and last - slot > SLOTS then booked = {} end
  return slot
end

-- What counts, and ms until some of it does not any more.
local function sliding_use(slot, length)
  local used, first = 0, nil
  for number, permits in pairs(booked) do
    if number < slot - SLOTS or permits <= 0 then
      booked[number] = nil
    else
      used, first = used + permits, math.min(first or number, number)
    end
  end
  local step = length / SLOTS
  return used, first and math.ceil((first + SLOTS + 1) * step - wall) or math.ceil(step)
end
