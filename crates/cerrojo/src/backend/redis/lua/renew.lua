-- Sets the TTL anew if the lock is still the owner's. ARGV[4]: the TTL in ms. Answers 1, or 0: it is not.

local held = redis.call('GET', lock)
if not is_of(held, owner) or is_broken(held, owner) then return 0 end
return redis.call('PEXPIRE', lock, ARGV[4])
