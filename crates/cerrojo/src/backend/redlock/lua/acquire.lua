-- The rest of a vote: the lock is held.

local held = redis.call('GET', lock)
if is_of(held, owner) and not is_broken(held, owner) then
  redis.call('PEXPIRE', lock, ARGV[4])
  return {1}
end
local at, pttl = now(), redis.call('PTTL', lock)
if ARGV[7] ~= '' then
  join(ARGV[6])
  local wake, ttl = at + ARGV[8], tonumber(ARGV[4])
  keep_until({owner = ARGV[6], wake = wake, ttl = ttl, asked = '0', channel = ARGV[7], details = ''}, at, tonumber(ARGV[8]))
end
return {0, 0, pttl, held, at}
