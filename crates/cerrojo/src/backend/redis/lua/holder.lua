-- Who holds the lock: false when nobody does, else {PTTL, value, the server's time}.

local held = redis.call('GET', lock)
if not held then return false end
return {redis.call('PTTL', lock), held, now()}
