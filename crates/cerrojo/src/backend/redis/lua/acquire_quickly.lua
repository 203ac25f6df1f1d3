-- A free lock for which nobody waits: the common case, before anything else is even defined.
if redis.call('EXISTS', KEYS[2]) == 0 then
  local value = ARGV[1]
  if not string.find(ARGV[3], 'f', 1, true) then
    local time = redis.call('TIME')
    local ms = time[1] .. string.sub(string.format('%06d', time[2]), 1, 3)
    value = value .. ' ' .. ms .. ' ' .. ARGV[5]
  end
  if redis.call('SET', KEYS[1], value, 'NX', 'PX', ARGV[4]) then return {1} end
end
