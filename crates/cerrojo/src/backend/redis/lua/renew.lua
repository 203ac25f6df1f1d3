-- Sets the TTL anew if the lock is still the owner's. ARGV[1]: the owner. ARGV[4]: the TTL in ms.
-- Answers 1, or 0: it is not.

local held = redis.call('GET', KEYS[1])
if not is_of(held, ARGV[1]) or is_broken(held, ARGV[1]) then return 0 end
return redis.call('PEXPIRE', KEYS[1], ARGV[4])
