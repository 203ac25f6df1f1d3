-- Grants the lock, or says who has it and takes a place in the line.
--
-- ARGV[4]  the TTL in ms
-- ARGV[5]  what is shown of the holder
-- ARGV[6]  the channel on which the asker hears, empty when it does not wait
-- ARGV[7]  the waiter's lease in ms
-- ARGV[8]  after how many ms a waiter asks again by itself, at the latest
-- ARGV[9]  the same for the first in line of a foreign format, where nobody tells of a release
-- ARGV[10] the asker's own time
--
-- Answers {1}, or {0, ask again in ms, PTTL, value, the server's time}.

local ttl, details, channel = ARGV[4], ARGV[5], ARGV[6]
local lease, tick, poll = tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9])

-- Newcomers do not overtake: a lock that is free is the first waiter's.
local function is_our_turn(at)
  local want = first(at)
  while want and want.owner ~= owner and not overtakes do
    local reached
    if is_foreign then reached = call_first(at) else reached = hand_over(at) end
    if reached then return false end
    want = first(at)
  end
  -- Nobody stands in an empty line. In another one somebody is the first now, who looks after us.
  if want then
    leave(owner)
    warn(at, is_foreign and poll or tonumber(ttl), LOOKOUTS)
  end
  return true
end

local function take(at)
  redis.call('SET', lock, value_of(owner, details, at), 'PX', ttl)
  return {1}
end

local function ask_again_in(at, is_new, pttl)
  local rank = redis.call('ZRANK', line, owner)
  local again = tick
  if is_new then again = math.min(again, provisional) end
  if is_foreign and rank == 0 then again = math.min(again, poll) end
  if rank <= LOOKOUTS and pttl > 0 then again = math.min(again, pttl + 1) end
  if rank <= LOOKOUTS and (is_foreign or pttl <= 0) then again = math.min(again, provisional) end
  return again
end

local function wait_in_line(at, pttl)
  -- One that is stopped would leave it to nobody to see a foreign release.
  if is_foreign then first(at) end
  local again = ask_again_in(at, join(owner), pttl)
  local want = {owner = owner, wake = at + again, ttl = tonumber(ttl), asked = ARGV[10], channel = channel, details = details}
  keep_until(want, at, lease)
  return again
end

local held = redis.call('GET', lock)
if is_of(held, owner) and not is_broken(held, owner) then
  redis.call('PEXPIRE', lock, ttl)
  return {1}
end
local at = now()
if not held then
  if is_our_turn(at) then return take(at) end
  held = redis.call('GET', lock)
end
local pttl = redis.call('PTTL', lock)
local again = 0
if channel ~= '' then again = wait_in_line(at, pttl) end
return {0, again, pttl, held, at}
