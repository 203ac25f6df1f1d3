-- Takes back what the owner holds or waits for. Answers 1, or 0: it did not hold the lock.

-- Whoever moves up looks after the holder, as those before it did.
local function move_up()
  if is_foreign then
    warn(now(), 0, 1)
  else
    warn(now(), redis.call('PTTL', lock) + 1, LOOKOUTS + 1)
  end
end

local held = redis.call('GET', lock)
if is_of(held, owner) then
  free()
  return 1
end
if leave(owner) then
  if held then move_up() else free() end
end
return 0
