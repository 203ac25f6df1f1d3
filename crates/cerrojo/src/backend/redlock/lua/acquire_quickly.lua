-- One node's vote. A lock that is free is whose who asks first: that many nodes call their first waiters, and not always
-- the same, must not split the votes for ever.
--
-- KEYS and ARGV[1..3] as the scripts of a single server have them; flags: f, since a release here deletes the key and calls.
-- ARGV[4]  the TTL in ms
-- ARGV[5]  what is shown of the holder, empty in a foreign format
-- ARGV[6]  the place in the line: the same for all rounds of one wait, while each round has an owner of its own
-- ARGV[7]  the channel on which the asker hears, empty when it does not wait
-- ARGV[8]  how long the place is kept, in ms
--
-- Answers {1}, or {0, 0, PTTL, value, the server's time}.

local value = ARGV[1]
if ARGV[5] ~= '' then
  local time = redis.call('TIME')
  local ms = time[1] .. string.sub(string.format('%06d', time[2]), 1, 3)
  value = value .. ' ' .. ms .. ' ' .. ARGV[5]
end
if redis.call('SET', KEYS[1], value, 'NX', 'PX', ARGV[4]) then return {1} end
