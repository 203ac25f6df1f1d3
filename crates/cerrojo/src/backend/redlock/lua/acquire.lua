-- Who is refused a node's vote learns who has the lock, and may take a place in the line.
--
-- A lock that is free is whose who asks first: that many nodes call their first waiters, and not always the same, must not
-- split the votes for ever.
--
-- KEYS and ARGV[1..3] as the scripts of a single server have them; flags: f, since a release here deletes the key and calls.
-- ARGV[4]  the TTL in ms
-- ARGV[5]  what is shown of the holder, empty in a foreign format
-- ARGV[6]  the place in the line: the same for all rounds of one wait, while each round has an owner of its own
-- ARGV[7]  the channel on which the asker hears, empty when it does not wait
-- ARGV[8]  how long the place is kept, in ms
--
-- Answers {1}, or {0, 0, PTTL, value, the server's time}.

local held, at = redis.call('GET', lock), now()
if not held then
  local value = owner
  if ARGV[5] ~= '' then value = owner .. ' ' .. whole(at) .. ' ' .. ARGV[5] end
  redis.call('SET', lock, value, 'PX', ARGV[4])
  return {1}
end
if is_of(held, owner) and not is_broken(held, owner) then
  redis.call('PEXPIRE', lock, ARGV[4])
  return {1}
end
if ARGV[7] ~= '' then
  join(ARGV[6])
  local wake, ttl = at + ARGV[8], tonumber(ARGV[4])
  keep_until({owner = ARGV[6], wake = wake, ttl = ttl, asked = '0', channel = ARGV[7], details = ''}, at, tonumber(ARGV[8]))
end
return {0, 0, redis.call('PTTL', lock), held, at}
