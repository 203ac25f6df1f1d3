-- What all scripts share: the lock, and the line of those who wait for it.
--
-- KEYS[1]  the lock, as value.lua says
-- KEYS[2]  the line: owners by their order
-- KEYS[3]  what each of them wants: `UNTIL WAKE TTL ASKED CHANNEL DETAILS`
-- ARGV[1]  the owner who asks
-- ARGV[2]  how long a lock that was handed over is the waiter's before its first renewal, in ms
-- ARGV[3]  flags: f a foreign format, o the asker overtakes, c publishing does not tell how many have heard it
--
-- UNTIL is the end of a waiter's own lease, WAKE when it asks again by itself: both in ms of the server's clock.
-- ASKED is the waiter's own time when its last request left; who is made the owner is told it, and counts from there.
-- A waiter of whom nothing has been heard until UNTIL has left. Everything here has an expiry from its first instant.

local lock, line, wants = KEYS[1], KEYS[2], KEYS[3]
local owner, provisional = ARGV[1], tonumber(ARGV[2])
local is_foreign = string.find(ARGV[3], 'f', 1, true)
local overtakes = string.find(ARGV[3], 'o', 1, true)
local hears_nothing = string.find(ARGV[3], 'c', 1, true)
-- How many waiters behind the first look after a holder that may be gone.
local LOOKOUTS = 2

local function whole(number)
  return string.format('%.0f', number)
end

local function now()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

local function value_of(who, details, at)
  if is_foreign then return who end
  return who .. ' ' .. whole(at) .. ' ' .. details
end

local function leave(who)
  redis.call('HDEL', wants, who)
  return redis.call('ZREM', line, who) == 1
end

local function want_of(who)
  local record = redis.call('HGET', wants, who)
  if not record then return nil end
  local lease_end, wake, ttl, asked, channel, details =
    string.match(record, '^(%d+) (%d+) (%d+) (%d+) (%S+) (.*)$')
  if not lease_end then return nil end
  return {
    owner = who, lease_end = tonumber(lease_end), wake = tonumber(wake), ttl = tonumber(ttl),
    asked = asked, channel = channel, details = details
  }
end

local function keep(want)
  local record = table.concat(
    {whole(want.lease_end), whole(want.wake), whole(want.ttl), want.asked, want.channel, want.details}, ' ')
  redis.call('HSET', wants, want.owner, record)
end

-- Whether it is new in the line: who stands there already keeps its place.
local function join(who)
  if redis.call('ZSCORE', line, who) then return false end
  local last = redis.call('ZRANGE', line, -1, -1, 'WITHSCORES')[2]
  redis.call('ZADD', line, whole((last or 0) + 1), who)
  return true
end

local function keep_until(want, at, lease)
  want.lease_end = at + lease
  keep(want)
  for _, key in ipairs({line, wants}) do
    if redis.call('PTTL', key) < lease then redis.call('PEXPIRE', key, whole(lease)) end
  end
end

-- The first one of a foreign format has to be quick: nobody else looks as often.
local function is_alive(want, at)
  return want.lease_end > at and not (is_foreign and want.wake + provisional <= at)
end

-- The first of those who are alive; the others before it leave.
local function first(at)
  local head = redis.call('ZRANGE', line, 0, 0)[1]
  while head do
    local want = want_of(head)
    if want and is_alive(want, at) then return want end
    leave(head)
    head = redis.call('ZRANGE', line, 0, 0)[1]
  end
  return nil
end

-- Whether anybody has heard it, as far as the server can tell.
local function tell(want, what, ms)
  local message = table.concat({what, whole(ms), want.asked, want.owner}, ' ')
  local heard = redis.call('PUBLISH', want.channel, message)
  return hears_nothing or heard > 0
end

-- The first `count` ask again within `ms`, also when whoever has the lock now is never heard of again.
local function warn(at, ms, count)
  for _, who in ipairs(redis.call('ZRANGE', line, 0, count - 1)) do
    local want = want_of(who)
    if want and want.wake > at + ms then
      want.wake = at + ms
      keep(want)
      tell(want, 'wake', ms)
    end
  end
end

-- Makes the first waiter that can be reached the owner. Answers whether there was one.
local function hand_over(at)
  local want = first(at)
  while want do
    leave(want.owner)
    local ms = math.min(want.ttl, provisional)
    if tell(want, 'yours', ms) then
      redis.call('SET', lock, value_of(want.owner, want.details, at), 'PX', whole(ms))
      warn(at, ms, LOOKOUTS)
      return true
    end
    want = first(at)
  end
  return false
end

-- A polling client never sees a lock that is handed over: the first waiter is called, and stays the first meanwhile.
local function call_first(at)
  local want = first(at)
  while want do
    if tell(want, 'free', 0) then
      want.wake = math.min(want.wake, at)
      keep(want)
      return true
    end
    leave(want.owner)
    want = first(at)
  end
  return false
end

-- Ends the present lease, if there is one.
local function free()
  local at = now()
  if is_foreign then
    redis.call('DEL', lock)
    call_first(at)
  elseif not hand_over(at) then
    redis.call('DEL', lock)
  end
end
