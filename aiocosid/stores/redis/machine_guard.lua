-- A sign of life: raise the stamp and the mark, lower neither.
--
-- ARGV  1 instance   2 machine id   3 now in ms   4 mark in ms
--       5 token with which it was handed out, '' if the caller does not know
--       6 the server's clock in ms instead of TIME, for tests
-- Reply {'kept'} or {'lost', who holds the id instead, '' if nobody}; then nothing was written
local instance, id = ARGV[1], tonumber(ARGV[2])
local now, mark = tonumber(ARGV[3]), tonumber(ARGV[4])

-- Changes nothing, but a replica refuses it: what it knows may be old.
redis.call('HDEL', tokens, '')

local held, stamp
local entry = redis.call('HGET', entries, instance)
if entry then held, stamp = read_entry(instance, entry) end
local before = noted(marks, id)
if damage then return damage end

if held ~= id or not is_latest(id, ARGV[5]) then
  for _, each in ipairs(read_entries()) do
    if each.id == id then return {'lost', each.instance} end
  end
  return {'lost', ''}
end

redis.call('HSET', seen, text(id), text(clock_of(ARGV[6])))
if now > stamp then redis.call('HSET', entries, instance, text(id) .. '|' .. text(now)) end
if mark > before then redis.call('HSET', marks, text(id), text(mark)) end
return {'kept'}
