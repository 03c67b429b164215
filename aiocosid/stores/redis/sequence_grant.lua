-- Grant sequences of one second.
--
-- KEYS  1 counter  string, the last sequence granted of the second; the published script of Java
--                  nodes counts it in the same way
--       2 fence    hash, ours, which never expires, with these fields
--         server   whose counters these are: run_id and master_replid
--         opens    the first second of which anything is granted
--         seen     the highest TIME so far, in s
--         reach    the most of tolerance + margin that anybody has named
-- ARGV  1 second   2 size   3 the highest sequence   4 tolerance, in s   5 margin, in s
--       6 ttl of the counter, in s
--
-- Reply {status, first, last, now, opens}, where status is
--         0  granted: first to last, of this second only
--         1  all sequences of the second have been granted; the counter was not touched
--         2  TIME and the second differ by more than the tolerance; the counter was not touched
--         3  the second lies below `opens`: its counter may have been lost
--       or {-1, why} where the server does not tell who it is; nothing was written.

-- INFO and TIME make what is written after them unpredictable: old servers have to be told.
pcall(redis.replicate_commands)

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

local refusal
local function told(section)
  local text = redis.pcall('INFO', section)
  if type(text) == 'string' then return text end
  refusal = refusal or text.err
  return ''
end

-- By plain search: a pattern would be tried at every letter.
local function fact(text, name)
  local _, last = text:find('\n' .. name .. ':', 1, true)
  return last and text:match('^[^\r\n]+', last + 1)
end

local server_text, replication_text = told('server'), told('replication')
local run_id, role = fact(server_text, 'run_id'), fact(replication_text, 'role')
local replid = fact(replication_text, 'master_replid')
if not (run_id and replid and role) then
  return {-1, refusal or 'INFO names no run_id, master_replid and role'}
end
if role ~= 'master' then return redis.error_reply('READONLY the server is a ' .. role) end

-- A server that was restarted or promoted is another one, and one without the hash was emptied.  A
-- clock that has been a minute ahead may have let counters expire that are needed again.  What was
-- granted reaches up to the highest TIME ever shown: that is not forgotten.
local here, now = run_id .. ' ' .. replid, tonumber(redis.call('TIME')[1])
local kept = redis.call('HMGET', fence, 'server', 'opens', 'seen', 'reach')
local opens, seen, reach = tonumber(kept[2]), tonumber(kept[3]), tonumber(kept[4])
local widest = math.max(reach or 0, tolerance + margin)
local function note(field, value)
  redis.call('HSET', fence, field, string.format('%.0f', value))
end
if kept[1] ~= here or not (opens and seen and reach) or seen - now >= 60 then
  seen = math.max(seen or 0, now)
  opens = math.max(opens or 0, seen + widest + 1)
  note('opens', opens)
  note('seen', seen)
  note('reach', widest)
  redis.call('HSET', fence, 'server', here)
else
  if widest > reach then  -- had it been known, the fence would lie higher
    opens = opens + widest - reach
    note('opens', opens)
    note('reach', widest)
  end
  if now > seen then note('seen', now) end
end

if math.abs(now - second) > tolerance then return {2, 0, 0, now, opens} end
if second < opens then return {3, 0, 0, now, opens} end

local found = redis.pcall('GET', counter)
if type(found) == 'table' then return found end
local last = found or '0'
if not (last:find('^%d+$') and #last < 20) then
  return redis.error_reply('ERR value is not an integer or out of range')
end
last = tonumber(last)
if last >= max then return {1, 0, 0, now, opens} end
local stop = math.min(last + size, max)
redis.call('INCRBY', counter, string.format('%.0f', stop - last))
redis.call('EXPIRE', counter, ARGV[6])
return {0, last + 1, stop, now, opens}
