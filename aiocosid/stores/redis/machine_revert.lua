-- Give a machine id back, if the instance still holds it; a stable one stays its owner.
--
-- ARGV  1 instance   2 machine id   3 no id was issued with a later time, in ms; -1: none at all;
--         -2: it is taken away from its owner, who may go on until its mark
--       4 '1' if the instance stays the owner
--       5 token with which it was handed out, '' if the caller does not know
-- Reply {'given'} or {'lost'}; then nothing was written
local instance, id, last = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])

-- Changes nothing, but a replica refuses it: what it knows may be old.
redis.call('HDEL', tokens, '')

local held, stamp
local entry = redis.call('HGET', entries, instance)
if entry then held, stamp = read_entry(instance, entry) end
local mark = noted(marks, id)
local before = noted(pool, id)
if damage then return damage end

if held ~= id or not is_latest(id, ARGV[5]) then return {'lost'} end

-- Never below an issued id, for the next owner may be CosId's, who knows no mark.
stamp = text(last == -2 and next_floor(stamp, mark) or math.max(stamp, last))
if last >= 0 and last < mark then redis.call('HSET', marks, text(id), text(last)) end
if ARGV[4] == '1' then
  redis.call('HSET', entries, instance, text(id) .. '|' .. stamp)
  return {'given'}
end
redis.call('HDEL', entries, instance)
redis.call('HDEL', stables, text(id))
redis.call('HDEL', seen, text(id))
redis.call('HDEL', claims, text(id))
redis.call('HSET', pool, text(id), text(math.max(tonumber(stamp), before)))
return {'given'}
