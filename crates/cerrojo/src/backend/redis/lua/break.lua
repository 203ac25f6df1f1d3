-- Takes the lock from whoever holds it. ARGV[1]: empty. ARGV[4]: the length of an owner in bytes. ARGV[5]: `now`, or
-- `at expiry`: no renewal is taken any more. Answers false when nobody holds it, else {PTTL, value, the server's time}.

local held = redis.call('GET', lock)
if not held then return false end
local seen = {redis.call('PTTL', lock), held, now()}
if ARGV[5] == 'now' then
  free()
else
  local length = tonumber(ARGV[4])
  redis.call('SET', lock, string.sub(held, 1, length) .. '!' .. string.sub(held, length + 2), 'KEEPTTL')
end
return seen
