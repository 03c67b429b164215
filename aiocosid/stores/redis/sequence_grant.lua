-- Grant sequences of one second; see the module `_sequence`.
local counter, fence = KEYS[1], KEYS[2]
for each = 1, 6 do
  if not (ARGV[each] and ARGV[each]:find('^%d+$') and #ARGV[each] < 17) then
    return redis.error_reply('ERR argument ' .. each .. ' is no positive integer')
  end
end
local second, size, max = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local tolerance, margin, ttl = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
-- A counter that expires while its second may still be asked for would begin anew.
if size < 1 or size > max or ttl < 2 * tolerance + 60 then
  return redis.error_reply('ERR size or ttl is out of range')
end
if hidden then return {-1, hidden} end
if demoted then return demoted end

-- A server that was restarted or promoted is another one, and one without the hash was emptied; one
-- whose counter of a second is below what was granted to aiocosid has lost some.  A clock that
-- has been a minute ahead may have let counters expire that are needed again.  Grants reach up to
-- the highest TIME ever shown, which is therefore kept.
local now, granted = tonumber(time[1]), 'granted:' .. ARGV[1]
local kept = redis.call('HMGET', fence, 'server', 'opens', 'seen', 'reach', granted)
local opens, seen, reach = tonumber(kept[2]), tonumber(kept[3]), tonumber(kept[4])
local found = redis.pcall('GET', counter) or '0'
if type(found) == 'table' then return found end
local last = #found < 20 and tonumber(found:match('^%d+$'))
local is_near, widest = math.abs(now - second) <= tolerance, math.max(reach or 0, tolerance + margin)
local is_short = is_near and second >= (opens or 0) and last and last < (tonumber(kept[5]) or 0)
local is_other = kept[1] ~= here or not (opens and seen and reach) or seen - now >= 60 or is_short
local is_known = not is_other and widest == reach and now <= seen
seen = math.max(seen or 0, now)
if is_other then
  opens = math.max(opens or 0, seen + widest + 1)
else
  opens = opens + widest - reach  -- a larger reach would have put the fence higher
end
if not is_known then
  redis.call('HSET', fence, 'server', here, 'opens', text(opens))
  redis.call('HSET', fence, 'seen', text(seen), 'reach', text(widest))
end

if not is_near then return {2, 0, 0, now, opens} end
if second < opens then return {3, 0, 0, now, opens} end
if not last then
  return redis.error_reply('ERR value is not an integer or out of range')
end
if last >= max then return {1, 0, 0, now, opens} end
local stop = math.min(last + size, max)
redis.call('INCRBY', counter, text(stop - last))
redis.call('EXPIRE', counter, ARGV[6])
if redis.call('HSET', fence, granted, text(stop)) == 1 then  -- the first of its second
  local past = {'granted:'}
  for _, field in ipairs(redis.call('HKEYS', fence)) do
    local before = tonumber(field:match('^granted:(%d+)$'))
    if before and before < now - widest then past[#past + 1] = field end
  end
  redis.call('HDEL', fence, unpack(past))
end
return {0, last + 1, stop, now, opens}
