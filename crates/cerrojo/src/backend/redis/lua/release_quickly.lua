-- A lock for which nobody waits: the common case, before anything else is even defined.
if redis.call('EXISTS', KEYS[2]) == 0 and is_of(redis.call('GET', KEYS[1]), ARGV[1]) then
  redis.call('DEL', KEYS[1])
  return 1
end
