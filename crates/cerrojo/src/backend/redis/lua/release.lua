-- Takes back what the owner holds or waits for. Answers 1, or 0: it did not hold the lock.

local held = redis.call('GET', lock)
if is_of(held, owner) then
  free()
  return 1
end
if leave(owner) and not held then free() end
return 0
