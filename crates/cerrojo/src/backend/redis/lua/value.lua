-- What the lock's value says.
--
-- KEYS[1]  the lock: `OWNER SINCE DETAILS`, or in a foreign format `OWNER` alone; `OWNER!...` once it is broken

local function is_of(value, who)
  return value and string.sub(value, 1, #who) == who
end

local function is_broken(value, who)
  return string.sub(value, #who + 1, #who + 1) == '!'
end
