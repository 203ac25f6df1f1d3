-- Takes back one node's vote. ARGV[4]: the place to be left, empty to keep it. ARGV[5]: `call` the first waiter, or `hush`: the
-- asker itself tries again. Answers 1, or 0: the owner did not hold the lock here.

local held = redis.call('GET', lock)
local was_held = is_of(held, owner)
if was_held then redis.call('DEL', lock) end
if ARGV[4] ~= '' then leave(ARGV[4]) end
if ARGV[5] == 'call' and (was_held or not held) then
  local at = now()
  -- Those behind the first look soon, in case it is stopped: nobody polls.
  if call_first(at) then warn(at, provisional, LOOKOUTS + 1) end
end
return was_held and 1 or 0
